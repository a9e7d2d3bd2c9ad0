import java.io.FileReader;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

/** For each file of client settings named: its name, and whether a cluster lets such a client in, or why it does not. */
public class LogIn {
    public static void main(String[] args) throws Exception {
        for (String file : args) {
            Properties settings = new Properties();
            try (FileReader reader = new FileReader(file)) {
                settings.load(reader);
            }
            settings.put("default.api.timeout.ms", "6000");
            settings.put("request.timeout.ms", "6000");
            String said;
            try (Admin admin = Admin.create(settings)) {
                admin.describeCluster().clusterId().get();
                said = "in";
            } catch (ExecutionException error) {
                said = error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
            } catch (Exception error) {
                said = error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(Paths.get(file).getFileName() + "\t" + said.replace('\n', ' '));
        }
    }
}
