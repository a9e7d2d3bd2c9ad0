import java.io.*;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/** Decodes and encodes group records with GroupCoordinatorRecordSerde. Input and output lines: key and value in hex. */
public class GroupRecordRoundTrip {
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
