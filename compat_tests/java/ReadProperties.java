import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Properties;

/**
 * Reads frames from standard input. A frame that begins with "L" is the content of a properties file: the result is the
 * number of its properties, or -1 if Java rejects it, then each key and value. A frame that begins with "S" is a key, a
 * zero character and a value: the result is the line that Properties.store writes for it.
 */
public final class ReadProperties {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        for (int remaining = in.readInt(); remaining > 0; remaining--) {
            byte[] frame = in.readNBytes(in.readInt());
            if (frame[0] == 'L') {
                load(new ByteArrayInputStream(frame, 1, frame.length - 1), out);
            } else {
                store(new String(frame, 1, frame.length - 1, "UTF-8"), out);
            }
        }
        out.flush();
    }

    private static void load(ByteArrayInputStream file, DataOutputStream out) throws IOException {
        Properties read = new Properties();
        try {
            read.load(file);
        } catch (IllegalArgumentException error) {
            out.writeInt(-1);
            return;
        }
        out.writeInt(read.size());
        for (String key : read.stringPropertyNames()) {
            write(key, out);
            write(read.getProperty(key), out);
        }
    }

    private static void store(String text, DataOutputStream out) throws IOException {
        int end = text.indexOf('\0');
        Properties properties = new Properties();
        properties.setProperty(text.substring(0, end), text.substring(end + 1));
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        properties.store(file, "");
        String written = file.toString("ISO-8859-1");
        write(written.substring(written.indexOf('\n', written.indexOf('\n') + 1) + 1), out);
    }

    private static void write(String text, DataOutputStream out) throws IOException {
        byte[] raw = text.getBytes("UTF-8");
        out.writeInt(raw.length);
        out.write(raw);
    }
}
