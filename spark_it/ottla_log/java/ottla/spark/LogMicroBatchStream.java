package ottla.spark;

import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** Micro-batch stream over log directories; {@code maxOffsetsPerTrigger} limits a batch. */
final class LogMicroBatchStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final LogOptions options;
    private final StructType schema;
    private final String checkpointLocation;
    private final LogCatalog catalog;
    private LogOffset available;

    LogMicroBatchStream(LogOptions options, StructType schema, String checkpointLocation) {
        this.options = options;
        this.schema = schema;
        this.checkpointLocation = checkpointLocation;
        catalog = new LogCatalog(options);
    }

    @Override
    public Offset initialOffset() {
        return InitialOffsets.readOrWrite(checkpointLocation, () -> {
            return PlanRetry.run(() -> {
                catalog.refresh();
                return new LogOffset(new OffsetResolver(options, catalog).resolve(options.streamStarting));
            });
        });
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        boolean isLimited = options.maxOffsetsPerTrigger < Long.MAX_VALUE;
        return isLimited ? ReadLimit.maxRows(options.maxOffsetsPerTrigger) : ReadLimit.allAvailable();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        available = readLatest();
    }

    private LogOffset readLatest() {
        PlanRetry.run(() -> {
            catalog.refresh();
            return catalog;
        });
        Map<TopicPartition, Long> ends = new TreeMap<>(LogCatalog.ORDER);
        catalog.logs.keySet().forEach(partition -> ends.put(partition, catalog.endOffset(partition)));
        return new LogOffset(ends);
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) must be called");
    }

    @Override
    public Offset reportLatestOffset() {
        return readLatest();
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        LogOffset latest = available == null ? readLatest() : available;
        LogOffset from = offsetOf(start);
        from.offsets.forEach((partition, offset) -> {
            Long end = latest.offsets.get(partition);
            if (end == null || end < offset) {
                catalog.reportDataLoss("Partition " + partition + " has no offset " + offset + ": it ends at " + end);
            }
        });
        return limit instanceof ReadMaxRows rows ? limited(from, latest, rows.maxRows()) : notBelow(from, latest);
    }

    /** Return the latest offsets, but for no partition one below that of the batch before. */
    private static LogOffset notBelow(LogOffset from, LogOffset latest) {
        LogOffset out = new LogOffset(latest.offsets);
        out.offsets.replaceAll((partition, end) -> Math.max(end, from.offsets.getOrDefault(partition, 0L)));
        return out;
    }

    /** Return offsets that end a batch of at most so many, shared out by the offsets that the partitions have. */
    private LogOffset limited(LogOffset from, LogOffset latest, long maxOffsets) {
        LogOffset out = notBelow(from, latest);
        long total = 0;
        for (Map.Entry<TopicPartition, Long> end : out.offsets.entrySet()) {
            total += end.getValue() - begin(from, end.getKey());
        }
        if (total <= maxOffsets) {
            return out;
        }
        double share = (double) maxOffsets / total;
        out.offsets.replaceAll((partition, end) -> {
            long begin = begin(from, partition);
            double part = share * (end - begin);
            return Math.min(end, begin + (long) (part < 1 ? Math.ceil(part) : Math.floor(part)));
        });
        return out;
    }

    /** Return the offset at which a batch begins in a partition: a new partition begins at its log start offset. */
    private long begin(LogOffset from, TopicPartition partition) {
        PartitionLog log = catalog.logs.get(partition);
        long first = log == null ? 0 : Math.min(log.logStartOffset, catalog.endOffset(partition));
        return from.offsets.getOrDefault(partition, first);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return PlanRetry.run(() -> plan(offsetOf(start), offsetOf(end)));
    }

    private InputPartition[] plan(LogOffset from, LogOffset to) {
        if (!catalog.logs.keySet().containsAll(to.offsets.keySet())) {
            catalog.refresh();
        }
        Map<TopicPartition, Long> begins = new TreeMap<>(LogCatalog.ORDER);
        to.offsets.forEach((partition, offset) -> {
            long begin = begin(from, partition);
            PartitionLog log = catalog.logs.get(partition);
            if (log == null && begin < offset) {
                catalog.reportDataLoss("No log of " + partition + " in " + options.places());
            } else if (log != null && begin < log.logStartOffset && begin < offset) {
                catalog.reportDataLoss("Offsets of " + partition + " from " + begin + " on were deleted: its log begins at "
                        + log.logStartOffset);
                begin = log.logStartOffset;
            }
            begins.put(partition, begin);
        });
        try {
            return new SplitPlanner(options, catalog).plan(begins, to.offsets);
        } catch (UncheckedIOException error) {
            catalog.refresh();
            throw error;
        }
    }

    private static LogOffset offsetOf(Offset offset) {
        return offset instanceof LogOffset own ? own : LogOffset.parse(offset.json());
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new LogReaderFactory(options, schema);
    }

    @Override
    public Offset deserializeOffset(String json) {
        return LogOffset.parse(json);
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}
}
