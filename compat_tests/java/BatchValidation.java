import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.zip.CRC32;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.server.common.*;

/**
 * Record batches validated by Kafka's LogValidator and read as by its consumer. An input line is a batch in base64. An
 * output line has the error code of the append, then "read COUNT CRC" of the keys and values, or "refused CLASS".
 */
public class BatchValidation {
    static final LogValidator.MetricsRecorder METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };

    static void add(CRC32 crc, ByteBuffer data) {
        if (data != null) crc.update(data);
    }

    static String append(byte[] raw) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(raw.clone()));
            CompressionType type = records.firstBatch().compressionType();
            new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM, type, Compression.of(type).build(), false,
                RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0,
                AppendOrigin.CLIENT).validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), METRICS, BufferSupplier.create());
            return "0";
        } catch (RecordValidationException e) {
            return "" + Errors.forException(e.invalidException()).code();
        } catch (Throwable e) {
            return "" + Errors.forException(e).code();
        }
    }

    static String read(byte[] raw) {
        int count = 0;
        CRC32 crc = new CRC32();
        RecordBatch batch = MemoryRecords.readableRecords(ByteBuffer.wrap(raw)).batches().iterator().next();
        try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.create())) {
            while (records.hasNext()) {
                Record record = records.next();
                count++;
                add(crc, record.key());
                add(crc, record.value());
            }
            return "read " + count + " " + crc.getValue();
        } catch (Throwable e) {
            return "refused " + e.getClass().getSimpleName();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] raw = Base64.getDecoder().decode(line);
            System.out.println(append(raw) + " " + read(raw));
        }
    }
}
