import java.io.FileReader;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

/** Connects with each file of client settings; prints its name and "in" if the client is authenticated, else the error. */
public class ClientAuthentication {
    public static void main(String[] args) throws Exception {
        for (String file : args) {
            Properties settings = new Properties();
            try (FileReader reader = new FileReader(file)) {
                settings.load(reader);
            }
            settings.put("default.api.timeout.ms", "6000");
            settings.put("request.timeout.ms", "6000");
            String result;
            try (Admin admin = Admin.create(settings)) {
                admin.describeCluster().clusterId().get();
                result = "in";
            } catch (ExecutionException error) {
                result = error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
            } catch (Exception error) {
                result = error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(Paths.get(file).getFileName() + "\t" + result.replace('\n', ' '));
        }
    }
}
