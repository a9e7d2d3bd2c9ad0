import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;

/** Runs Kafka's own tools for groups, a command a line, in one machine; a line of its own stands behind each answer. */
public class Groups {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            Class<?> tool = Class.forName("org.apache.kafka.tools." + words[0]);
            Method run = tool.getMethod(words[0].startsWith("streams.") ? "execute" : "main", String[].class);
            run.invoke(null, (Object) rest);
            System.out.println("\n== end");
        }
    }
}
