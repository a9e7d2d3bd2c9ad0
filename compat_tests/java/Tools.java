import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs Kafka's own command-line tools in one machine, a call a line: the class and its words, tabs between them. What
 * the call said comes back in lines that begin with 1 (output) or 2 (errors), then one with its exit status.
 */
public class Tools {
    static class Ended extends RuntimeException { }

    static ByteArrayOutputStream[] said = new ByteArrayOutputStream[2];
    static String[] whole = new String[2];
    static int status;
    static List<Runnable> hooks = new ArrayList<>();

    static void end(int code) {
        if (whole[0] != null) return; // a tool that catches its own end ends once more
        status = code;
        for (int i = 0; i < 2; i++) whole[i] = said[i].toString();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        LoggerFactory.getLogger(Tools.class); // what is logged goes where it went before
        Exit.setExitProcedure((code, message) -> {
            if (message != null) System.err.println(message);
            end(code);
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> {
            if (name.startsWith("producer")) hooks.add(hook); // sends what is buffered
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("<")) { // standard input of the next call
                System.setIn(new FileInputStream(words[1]));
                continue;
            }
            for (int i = 0; i < 2; i++) said[i] = new ByteArrayOutputStream();
            whole = new String[2];
            System.setOut(new PrintStream(said[0], true));
            System.setErr(new PrintStream(said[1], true));
            try {
                String prefix = words[0].startsWith("kafka.") ? "" : "org.apache.kafka.tools.";
                Class<?> tool = Class.forName(prefix + words[0]);
                tool.getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Ended)) {
                    System.err.println("Exception in thread \"main\" " + e.getCause());
                    end(1);
                }
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            end(0);
            for (int i = 0; i < 2; i++) whole[i].lines().forEach(new Line(out, i + 1)::print);
            out.println("= " + status);
            out.flush();
        }
    }

    record Line(PrintStream out, int which) {
        void print(String text) {
            out.println(which + " " + text);
        }
    }
}
