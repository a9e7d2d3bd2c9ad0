package ottla.spark;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;

/** Replica of a partition in a log directory, as it is when a read is planned. */
final class PartitionLog {
    final TopicPartition partition;
    final Path directory;
    final String topicId;
    final int lastEpoch;
    final long logStartOffset;

    /** High watermark in the checkpoint file of the log directory; -1 without an entry. */
    final long checkpointedHighWatermark;

    final TreeMap<Long, Segment> segments;
    private final Map<Segment, SegmentIndex> indexes = new HashMap<>();
    private final boolean skipDamagedBatches;

    PartitionLog(
            TopicPartition partition,
            Path directory,
            long checkpointedStart,
            long checkpointedHighWatermark,
            boolean skipDamagedBatches)
            throws IOException {
        this.partition = partition;
        this.directory = directory;
        this.checkpointedHighWatermark = checkpointedHighWatermark;
        this.skipDamagedBatches = skipDamagedBatches;
        topicId = CheckpointFiles.readTopicId(directory);
        lastEpoch = CheckpointFiles.readLastEpoch(directory);
        segments = Segment.list(directory);
        long first = segments.isEmpty() ? 0 : segments.firstKey();
        logStartOffset = Math.max(first, checkpointedStart);
    }

    /** Take over the indexes of segments that an earlier state of the same log has read. */
    void reuseIndexes(PartitionLog earlier) {
        if (earlier.directory.equals(directory)) {
            earlier.indexes.forEach((segment, index) -> {
                if (segment.equals(segments.get(segment.baseOffset())) && index.size() <= fileSize(segment)) {
                    indexes.put(segment, index);
                }
            });
        }
    }

    private static long fileSize(Segment segment) {
        return segment.file().toFile().length();
    }

    SegmentIndex index(Segment segment) throws IOException {
        SegmentIndex index = indexes.get(segment);
        if (index == null) {
            index = new SegmentIndex(segment);
            indexes.put(segment, index);
        }
        return index;
    }

    boolean isActive(Segment segment) {
        return segment.equals(segments.lastEntry().getValue());
    }

    /** Return the offset behind the last complete batch. */
    long logEndOffset() throws IOException {
        if (segments.isEmpty()) {
            return logStartOffset;
        }
        SegmentIndex index = index(segments.lastEntry().getValue());
        index.scan(skipDamagedBatches);
        return Math.max(index.nextOffset(), logStartOffset);
    }

    /** Return the place where the last segment ends with bytes that are no batch, or an empty string. */
    String damageAtEnd() throws IOException {
        Segment last = segments.lastEntry().getValue();
        long position = index(last).damagedPosition();
        return position < 0 ? "" : "; no batch in " + last.file() + " at position " + position;
    }

    /** Return the segment that contains an offset, or the first one. */
    Segment floorSegment(long offset) {
        Map.Entry<Long, Segment> entry = segments.floorEntry(offset);
        return entry == null ? segments.firstEntry().getValue() : entry.getValue();
    }

    /** Return the position in its segment of a batch that begins at or before an offset. */
    int floorPosition(Segment segment, long offset) throws IOException {
        return index(segment).floorPosition(offset, skipDamagedBatches);
    }

    /**
     * Return the first offset, from the log start offset on, of a record with a timestamp of at least
     * {@code timestamp}; -1 if there is none below {@code endOffset}.
     */
    long offsetOfTime(long timestamp, long endOffset) throws IOException {
        for (Segment segment : segments.values()) {
            int position = index(segment).positionOfTime(timestamp, isActive(segment), skipDamagedBatches);
            Long next = segments.higherKey(segment.baseOffset());
            if (position < 0 || (next != null && next <= logStartOffset)) {
                continue;
            }
            long found = searchTime(segment, position, timestamp, endOffset);
            if (found >= 0 || (next != null && next >= endOffset)) {
                return found;
            }
        }
        return -1;
    }

    private long searchTime(Segment segment, int position, long timestamp, long endOffset) throws IOException {
        try (HeaderCursor cursor = new HeaderCursor(segment.file(), position)) {
            while (cursor.next()) {
                BatchHeader header = cursor.header;
                if (!header.isLegacy() && header.baseOffset >= endOffset) {
                    return -1;
                }
                if (header.maxTimestamp >= timestamp && header.lastOffset >= logStartOffset) {
                    for (MutableRecordBatch batch : BatchRecords.of(cursor.readBatch()).batches()) {
                        for (Record record : batch) {
                            if (record.timestamp() >= timestamp && record.offset() >= logStartOffset) {
                                return record.offset() < endOffset ? record.offset() : -1;
                            }
                        }
                    }
                }
            }
        }
        return -1;
    }
}
