package ottla.spark;

import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** Batch read of a range of offsets of each partition. */
final class LogBatch implements Batch {
    private final LogOptions options;
    private final StructType schema;

    LogBatch(LogOptions options, StructType schema) {
        if (isEverywhere(options.starting, OffsetSpec.LATEST) || isEverywhere(options.ending, OffsetSpec.EARLIEST)) {
            throw new LogSourceException("A batch read begins before the latest and ends behind the earliest offset");
        }
        this.options = options;
        this.schema = schema;
    }

    private static boolean isEverywhere(OffsetSpec spec, long offset) {
        return !spec.isTimestamp() && spec.everywhere() != null && spec.everywhere() == offset;
    }

    @Override
    public InputPartition[] planInputPartitions() {
        return PlanRetry.run(this::plan);
    }

    private InputPartition[] plan() {
        LogCatalog catalog = new LogCatalog(options);
        catalog.refresh();
        OffsetResolver resolver = new OffsetResolver(options, catalog);
        Map<TopicPartition, Long> end = resolver.resolve(options.ending);
        Map<TopicPartition, Long> start = resolver.resolve(options.starting);
        return new SplitPlanner(options, catalog).plan(start, end);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new LogReaderFactory(options, schema);
    }
}
