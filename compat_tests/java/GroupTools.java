import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;

/** Runs Kafka's group tools in one JVM: one command per input line; the line "== end" follows the output of each. */
public class GroupTools {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ");
            String[] arguments = java.util.Arrays.copyOfRange(fields, 1, fields.length);
            Class<?> tool = Class.forName("org.apache.kafka.tools." + fields[0]);
            Method run = tool.getMethod(fields[0].startsWith("streams.") ? "execute" : "main", String[].class);
            run.invoke(null, (Object) arguments);
            System.out.println("\n== end");
        }
    }
}
