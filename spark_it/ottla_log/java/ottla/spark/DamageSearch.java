package ottla.spark;

import java.io.IOException;
import org.apache.kafka.common.record.RecordBatch;

/** Search for the next batch behind damaged bytes. */
final class DamageSearch {
    private static final int WINDOW_BYTES = 1 << 20;
    private static final int MAGIC_POSITION = 16;

    private DamageSearch() {}

    /**
     * Return the position of the first batch of format 2 with a valid checksum and an offset of at least
     * {@code minOffset}; -1 if there is none.
     */
    static long nextBatch(SegmentInput input, long from, long minOffset) throws IOException {
        BatchHeader header = new BatchHeader();
        byte[] window = new byte[WINDOW_BYTES];
        long fileSize = input.size();
        for (long start = from; start < fileSize; start += WINDOW_BYTES - BatchHeader.MAX_BYTES) {
            int bytes = input.read(window, 0, window.length, start);
            for (int at = 0; at + BatchHeader.MAX_BYTES <= bytes; at++) {
                boolean isCandidate = window[at + MAGIC_POSITION] == RecordBatch.MAGIC_VALUE_V2
                        && header.decode(window, at, bytes - at)
                        && header.baseOffset >= minOffset
                        && start + at + header.sizeInBytes <= fileSize;
                if (isCandidate) {
                    byte[] batch = new byte[header.sizeInBytes];
                    input.read(batch, 0, batch.length, start + at);
                    if (BatchHeader.hasValidChecksum(batch, 0, batch.length)) {
                        return start + at;
                    }
                }
            }
        }
        return -1;
    }
}
