package ottla.spark;

import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** Next offset of each partition in a streaming query; its JSON is that of Spark's Kafka connector. */
final class LogOffset extends Offset {
    final TreeMap<TopicPartition, Long> offsets = new TreeMap<>(LogCatalog.ORDER);

    LogOffset(Map<TopicPartition, Long> offsets) {
        this.offsets.putAll(offsets);
    }

    static LogOffset parse(String json) {
        TreeMap<TopicPartition, Long> offsets = new TreeMap<>(LogCatalog.ORDER);
        OffsetsJson.parse(json).forEach((topic, partitions) ->
                partitions.forEach((partition, offset) -> offsets.put(new TopicPartition(topic, partition), offset)));
        return new LogOffset(offsets);
    }

    @Override
    public String json() {
        return OffsetsJson.format(offsets);
    }
}
