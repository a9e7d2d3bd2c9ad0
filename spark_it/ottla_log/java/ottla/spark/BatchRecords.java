package ottla.spark;

import java.nio.ByteBuffer;
import org.apache.kafka.common.record.MemoryRecords;

/** Batches decoded by Kafka's own classes: single batches of a plan, and messages of the formats 0 and 1. */
final class BatchRecords {
    private BatchRecords() {}

    static MemoryRecords of(byte[] bytes) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    }
}
