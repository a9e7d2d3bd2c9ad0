package ottla.spark;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;

/**
 * Log of a partition, as it is when a read is planned: a replica in a log directory, and the segments of the remote store
 * that it has no more. A log without a directory consists of the latter.
 */
final class PartitionLog {
    final TopicPartition partition;

    /** Directory of the replica; null without one. */
    final Path directory;

    final String topicId;
    final TreeMap<Integer, Long> leaderEpochs;
    private long checkpointedStart;
    long logStartOffset;

    /** High watermark in the checkpoint file of the log directory; -1 without an entry. */
    final long checkpointedHighWatermark;

    /** Segments by the first offset that is to be read from each: that of a local one is its base offset. */
    final TreeMap<Long, Segment> segments;

    /** Objects of the remote segments among them. */
    TreeMap<Long, SegmentObject> remoteObjects = new TreeMap<>();

    private final Map<Segment, SegmentIndex> indexes = new HashMap<>();
    private SegmentIndex remoteIndex;
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
        this.checkpointedStart = checkpointedStart;
        this.skipDamagedBatches = skipDamagedBatches;
        topicId = CheckpointFiles.readTopicId(directory);
        leaderEpochs = CheckpointFiles.readLeaderEpochs(directory);
        segments = LocalSegment.list(directory);
        long first = segments.isEmpty() ? 0 : segments.firstKey();
        logStartOffset = Math.max(first, checkpointedStart);
    }

    /** Create the log of a partition that is only in the remote store. */
    PartitionLog(TopicPartition partition, String topicId, TreeMap<Long, SegmentObject> objects, LogOptions options) {
        this.partition = partition;
        this.topicId = topicId;
        directory = null;
        checkpointedHighWatermark = -1;
        skipDamagedBatches = options.skipDamagedBatches;
        leaderEpochs = new TreeMap<>();
        segments = new TreeMap<>();
        addRemote(objects, options);
    }

    /** Add the segments of the remote store with offsets below the local ones. */
    void addRemote(TreeMap<Long, SegmentObject> objects, LogOptions options) {
        remoteObjects = objects;
        objects.forEach((first, object) -> segments.put(first, new RemoteSegment(object, options)));
        logStartOffset = segments.isEmpty() ? checkpointedStart : Math.max(segments.firstKey(), checkpointedStart);
    }

    /** Return true if the log begins below the local segments, so that the remote store may have more of it. */
    boolean beginsBelowLocalSegments() {
        return !segments.isEmpty() && checkpointedStart < segments.firstKey();
    }

    /** Return the offset from which on the log checkpointed to begin. */
    long checkpointedStart() {
        return checkpointedStart;
    }

    /** Return the base offset of the first local segment; {@link Long#MAX_VALUE} without one. */
    long localStartOffset() {
        return segments.entrySet().stream()
                .filter(entry -> entry.getValue() instanceof LocalSegment)
                .mapToLong(Map.Entry::getKey)
                .findFirst()
                .orElse(Long.MAX_VALUE);
    }

    int lastEpoch() {
        return leaderEpochs.isEmpty() ? -1 : leaderEpochs.lastKey();
    }

    /** Take over the indexes of segments that an earlier state of the same log has read. */
    void reuseIndexes(PartitionLog earlier) throws IOException {
        if (directory.equals(earlier.directory)) {
            for (Map.Entry<Segment, SegmentIndex> entry : earlier.indexes.entrySet()) {
                Segment segment = entry.getKey();
                boolean isThere = segment.equals(segments.get(segment.baseOffset()));
                if (isThere && entry.getValue().size() <= segment.sizeInBytes()) {
                    indexes.put(segment, entry.getValue());
                }
            }
        }
    }

    /** Return the index of a segment. Only the last one of a remote segment is kept: there may be many. */
    SegmentIndex index(Segment segment) throws IOException {
        if (segment instanceof RemoteSegment) {
            if (remoteIndex == null || !remoteIndex.segment.equals(segment)) {
                remoteIndex = new SegmentIndex(segment);
            }
            return remoteIndex;
        }
        SegmentIndex index = indexes.get(segment);
        if (index == null) {
            index = new SegmentIndex(segment);
            indexes.put(segment, index);
        }
        return index;
    }

    boolean isActive(Segment segment) {
        return segment instanceof LocalSegment && segment.equals(segments.lastEntry().getValue());
    }

    /** Return the offset behind the last complete batch. */
    long logEndOffset() throws IOException {
        if (segments.isEmpty()) {
            return logStartOffset;
        }
        Segment last = segments.lastEntry().getValue();
        if (last instanceof RemoteSegment) {
            return Math.max(last.lastOffset() + 1, logStartOffset);
        }
        SegmentIndex index = index(last);
        index.scan(skipDamagedBatches);
        return Math.max(index.nextOffset(), logStartOffset);
    }

    /** Return the place where the last segment ends with bytes that are no batch, or an empty string. */
    String damageAtEnd() throws IOException {
        if (segments.isEmpty()) {
            return "";
        }
        Segment last = segments.lastEntry().getValue();
        long position = index(last).damagedPosition();
        return position < 0 ? "" : "; no batch in " + last.path() + " at position " + position;
    }

    /** Return the segments from the one on that contains an offset, or from the first one on. */
    NavigableMap<Long, Segment> segmentsFrom(long offset) {
        Long first = segments.floorKey(offset);
        return first == null ? segments : segments.tailMap(first, true);
    }

    /**
     * Return false if a segment is not the last one and the offset is beyond it. Compaction may have merged a local one
     * with the next ones since they were listed.
     */
    boolean mayContain(Segment segment, long offset) throws IOException {
        if (segment instanceof RemoteSegment) {
            return offset <= segment.lastOffset();
        }
        Long next = segments.higherKey(segment.baseOffset());
        return next == null || offset < next || !LocalSegment.list(directory).containsKey(next);
    }

    /** Return the position in its segment of a batch that begins at or before an offset. */
    int floorPosition(Segment segment, long offset) throws IOException {
        if (offset <= segment.baseOffset()) {
            return 0;
        }
        return index(segment).floorPosition(offset, skipDamagedBatches);
    }

    /**
     * Return the first offset, from the log start offset on, of a record with a timestamp of at least
     * {@code timestamp}; -1 if there is none below {@code endOffset}.
     */
    long offsetOfTime(long timestamp, long endOffset) throws IOException {
        for (Map.Entry<Long, Segment> entry : segments.entrySet()) {
            Segment segment = entry.getValue();
            Long next = segments.higherKey(entry.getKey());
            if (segment.maxTimestamp() < timestamp || (next != null && next <= logStartOffset)) {
                continue;
            }
            int position = index(segment).positionOfTime(timestamp, isActive(segment), skipDamagedBatches);
            if (position < 0) {
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
        try (HeaderCursor cursor = new HeaderCursor(segment, position)) {
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
