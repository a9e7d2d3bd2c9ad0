import java.io.*;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.*;

/**
 * Decodes and encodes messages with Kafka's generated classes. Input: class name, version, bytes. Output: length and
 * bytes; or -1 and an error message.
 */
public class RoundTrip {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            String name = in.readUTF();
            short version = in.readShort();
            byte[] bytes = new byte[in.readInt()];
            in.readFully(bytes);
            try {
                Message message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                message.read(new ByteBufferAccessor(buffer), version);
                if (buffer.hasRemaining()) throw new IllegalStateException(buffer.remaining() + " bytes left over");
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(again), cache, version);
                out.writeInt(again.position());
                out.write(again.array(), 0, again.position());
            } catch (Throwable error) {
                out.writeInt(-1);
                out.writeUTF(String.valueOf(error));
            }
        }
        out.flush();
    }
}
