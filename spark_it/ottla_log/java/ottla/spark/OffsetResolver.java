package ottla.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;

/** Offsets of the partitions at the start or end of a read. */
final class OffsetResolver {
    private final LogOptions options;
    private final LogCatalog catalog;

    OffsetResolver(LogOptions options, LogCatalog catalog) {
        this.options = options;
        this.catalog = catalog;
    }

    Map<TopicPartition, Long> resolve(OffsetSpec spec) {
        if (spec.everywhere() == null) {
            checkPartitions(spec);
        }
        Map<TopicPartition, Long> out = new TreeMap<>(LogCatalog.ORDER);
        for (PartitionLog log : catalog.logs.values()) {
            TopicPartition partition = log.partition;
            Long number = spec.everywhere() != null
                    ? spec.everywhere()
                    : spec.byPartition().get(partition.topic()).get(partition.partition());
            out.put(partition, spec.isTimestamp() ? ofTime(spec, log, number) : ofOffset(spec, log, number));
        }
        return out;
    }

    private void checkPartitions(OffsetSpec spec) {
        int stated = spec.byPartition().values().stream().mapToInt(Map::size).sum();
        boolean areAllKnown = catalog.logs.keySet().stream()
                .allMatch(at -> spec.byPartition().getOrDefault(at.topic(), Map.of()).containsKey(at.partition()));
        if (!areAllKnown || stated != catalog.logs.size()) {
            throw new LogSourceException("Option " + spec.option() + " must state all partitions " + catalog.logs.keySet()
                    + ", states " + spec.byPartition());
        }
    }

    private long ofOffset(OffsetSpec spec, PartitionLog log, long offset) {
        long end = catalog.endOffset(log.partition);
        if (offset == OffsetSpec.LATEST) {
            return end;
        }
        if (offset == OffsetSpec.EARLIEST) {
            return Math.min(log.logStartOffset, end);
        }
        if (offset < log.logStartOffset || offset > end) {
            catalog.reportDataLoss("Offset " + offset + " of " + log.partition + " in option " + spec.option()
                    + " is out of range: the log has [" + log.logStartOffset + ", " + end + ")");
        }
        return Math.max(log.logStartOffset, Math.min(offset, end));
    }

    private long ofTime(OffsetSpec spec, PartitionLog log, long timestamp) {
        long end = catalog.endOffset(log.partition);
        try {
            long offset = log.offsetOfTime(timestamp, end);
            if (offset >= 0) {
                return offset;
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        if (spec.isStart() && !options.useLatestWithoutTimestamp) {
            throw new LogSourceException("No offset of " + log.partition + " with a timestamp of at least " + timestamp
                    + " (option " + spec.option()
                    + "); set startingOffsetsByTimestampStrategy to latest to begin at the end");
        }
        return end;
    }
}
