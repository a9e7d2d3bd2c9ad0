import java.io.*;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/** Reads group records with Kafka's own classes and writes them again. A line in and out: key and value in hex. */
public class Serde {
    public static void main(String[] args) throws Exception {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        HexFormat hex = HexFormat.of();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ");
            ByteBuffer value = w[1].equals("-") ? null : ByteBuffer.wrap(hex.parseHex(w[1]));
            CoordinatorRecord record = serde.deserialize(ByteBuffer.wrap(hex.parseHex(w[0])), value);
            byte[] raw = serde.serializeValue(record);
            String name = record.key().getClass().getSimpleName();
            System.out.println(hex.formatHex(serde.serializeKey(record)) + " " + (raw == null ? "-" : hex.formatHex(raw)) + " " + name);
        }
    }
}
