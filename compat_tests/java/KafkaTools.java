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
 * Runs Kafka's command-line tools in one JVM. An input line is a call: class and arguments, separated by tabs. The output
 * of a call has lines that begin with 1 (stdout) or 2 (stderr), then a line with the exit status.
 */
public class KafkaTools {
    static class ToolExit extends RuntimeException { }

    static ByteArrayOutputStream[] output = new ByteArrayOutputStream[2];
    static String[] completeOutput = new String[2];
    static int status;
    static List<Runnable> hooks = new ArrayList<>();

    static void end(int code) {
        if (completeOutput[0] != null) return; // a tool that catches ToolExit exits again
        status = code;
        for (int i = 0; i < 2; i++) completeOutput[i] = output[i].toString();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        LoggerFactory.getLogger(KafkaTools.class); // binds the logger to the original System.err
        Exit.setExitProcedure((code, message) -> {
            if (message != null) System.err.println(message);
            end(code);
            throw new ToolExit();
        });
        Exit.setShutdownHookAdder((name, hook) -> {
            if (name.startsWith("producer")) hooks.add(hook); // flushes the producer
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            if (fields[0].equals("<")) { // standard input of the next call
                System.setIn(new FileInputStream(fields[1]));
                continue;
            }
            for (int i = 0; i < 2; i++) output[i] = new ByteArrayOutputStream();
            completeOutput = new String[2];
            System.setOut(new PrintStream(output[0], true));
            System.setErr(new PrintStream(output[1], true));
            try {
                String prefix = fields[0].startsWith("kafka.") ? "" : "org.apache.kafka.tools.";
                Class<?> tool = Class.forName(prefix + fields[0]);
                tool.getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(fields, 1, fields.length));
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof ToolExit)) {
                    System.err.println("Exception in thread \"main\" " + e.getCause());
                    end(1);
                }
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            end(0);
            for (int i = 0; i < 2; i++) completeOutput[i].lines().forEach(new TaggedText(out, i + 1)::print);
            out.println("= " + status);
            out.flush();
        }
    }

    record TaggedText(PrintStream out, int stream) {
        void print(String text) {
            out.println(stream + " " + text);
        }
    }
}
