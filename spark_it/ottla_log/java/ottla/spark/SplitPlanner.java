package ottla.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;

/** Division of ranges of offsets into tasks of about equal bytes, at the bounds of batches. */
final class SplitPlanner {
    private static final long MIN_BYTES_OF_TASK = 4 << 20;

    private final LogOptions options;
    private final LogCatalog catalog;
    private final List<InputPartition> tasks = new ArrayList<>();
    private List<LogSlice> slices = new ArrayList<>();
    private long bytesOfSlices;
    private long bytesPerTask;

    SplitPlanner(LogOptions options, LogCatalog catalog) {
        this.options = options;
        this.catalog = catalog;
    }

    /** Part of a segment from a position on, with the bytes up to the next part; {@code first}: its key in the log. */
    private record Part(long first, Segment segment, int position, long bytes) {}

    InputPartition[] plan(Map<TopicPartition, Long> start, Map<TopicPartition, Long> end) {
        try {
            Map<TopicPartition, List<Part>> parts = new TreeMap<>(LogCatalog.ORDER);
            long bytes = 0;
            for (Map.Entry<TopicPartition, Long> entry : end.entrySet()) {
                long from = start.get(entry.getKey());
                PartitionLog log = catalog.logs.get(entry.getKey());
                if (from < entry.getValue() && log != null && !log.segments.isEmpty()) {
                    List<Part> found = parts(log, from, entry.getValue());
                    parts.put(entry.getKey(), found);
                    bytes += found.stream().mapToLong(Part::bytes).sum();
                }
            }
            bytesPerTask = bytesPerTask(bytes);
            for (Map.Entry<TopicPartition, List<Part>> entry : parts.entrySet()) {
                TopicPartition partition = entry.getKey();
                split(catalog.logs.get(partition), entry.getValue(), start.get(partition), end.get(partition));
            }
            closeTask();
            return tasks.toArray(new InputPartition[0]);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private long bytesPerTask(long bytes) {
        if (options.minPartitions > 0) {
            return Math.max(1, Math.min(options.maxBytesPerPartition, bytes / options.minPartitions));
        }
        int parallelism = SparkSession.active().sparkContext().defaultParallelism();
        return Math.min(options.maxBytesPerPartition, Math.max(MIN_BYTES_OF_TASK, bytes / parallelism + 1));
    }

    private static List<Part> parts(PartitionLog log, long from, long to) throws IOException {
        List<Part> out = new ArrayList<>();
        for (Map.Entry<Long, Segment> entry : log.segmentsFrom(from).entrySet()) {
            long first = entry.getKey();
            Segment segment = entry.getValue();
            if (first >= to) {
                break;
            }
            int begin = log.floorPosition(segment, Math.max(from, first));
            Long next = log.segments.higherKey(first);
            boolean isReadToEnd = next != null ? next <= to : segment.lastOffset() < to;
            long end = isReadToEnd ? segment.sizeInBytes() : log.floorPosition(segment, to);
            out.add(new Part(first, segment, begin, Math.max(1, end - begin)));
        }
        return out;
    }

    private void split(PartitionLog log, List<Part> parts, long start, long end) throws IOException {
        AbortedTransactions aborted = catalog.abortedTransactions(log.partition, start, end);
        long from = start;
        long hint = parts.get(0).first();
        int hintPosition = parts.get(0).position();
        for (Part part : parts) {
            long position = part.position();
            long left = part.bytes();
            while (bytesOfSlices + left > bytesPerTask) {
                long cut = position + Math.max(bytesPerTask - bytesOfSlices, 1);
                int at = log.index(part.segment()).ceilingPosition(cut);
                if (at < 0 || at >= part.position() + part.bytes()) {
                    break;
                }
                long offset = offsetAt(part.segment(), at);
                if (offset > from && offset < end) {
                    add(log, from, offset, hint, hintPosition, aborted, at - position);
                    closeTask();
                    from = offset;
                    hint = part.first();
                    hintPosition = at;
                }
                left -= at - position;
                position = at;
            }
            bytesOfSlices += left;
        }
        add(log, from, end, hint, hintPosition, aborted, 0);
        if (bytesOfSlices >= bytesPerTask) {
            closeTask();
        }
    }

    private static long offsetAt(Segment segment, int position) throws IOException {
        try (HeaderCursor cursor = new HeaderCursor(segment, position)) {
            return cursor.next() && !cursor.header.isLegacy() ? cursor.header.baseOffset : -1;
        }
    }

    private void add(
            PartitionLog log, long from, long to, long hint, int position, AbortedTransactions aborted, long bytes) {
        TopicPartition at = log.partition;
        slices.add(new LogSlice(
                at.topic(),
                at.partition(),
                log.topicId,
                log.directory == null ? null : log.directory.toString(),
                SegmentObject.within(log.remoteObjects, from, to),
                from,
                to,
                hint,
                position,
                aborted.within(from, to)));
        bytesOfSlices += bytes;
    }

    private void closeTask() {
        if (!slices.isEmpty()) {
            tasks.add(new LogInputPartition(List.copyOf(slices)));
        }
        slices = new ArrayList<>();
        bytesOfSlices = 0;
    }
}
