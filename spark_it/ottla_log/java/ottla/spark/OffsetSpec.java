package ottla.spark;

import java.io.Serializable;
import java.util.Map;

/**
 * Start or end of a read: earliest, latest, an offset for each partition, or a timestamp (ms).
 *
 * @param option the option that states it, for messages
 * @param isStart true for the start of a read
 * @param everywhere the offset or timestamp of all partitions, or null
 * @param byPartition offsets or timestamps by topic and partition
 * @param isTimestamp true if the numbers are timestamps
 */
record OffsetSpec(
        String option,
        boolean isStart,
        Long everywhere,
        Map<String, Map<Integer, Long>> byPartition,
        boolean isTimestamp)
        implements Serializable {
    private static final long serialVersionUID = 1;
    static final long EARLIEST = -2;
    static final long LATEST = -1;

    static OffsetSpec of(String option, boolean isStart, long offset) {
        return new OffsetSpec(option, isStart, offset, Map.of(), false);
    }
}
