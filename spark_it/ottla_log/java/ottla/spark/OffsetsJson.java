package ottla.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;

/** JSON of offsets and assignments as in Spark's Kafka connector: {@code {"topic": {"0": 23}}}. */
final class OffsetsJson {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private OffsetsJson() {}

    static Map<String, Map<Integer, Long>> parse(String text) {
        try {
            return MAPPER.readValue(text, new TypeReference<TreeMap<String, Map<Integer, Long>>>() {});
        } catch (JsonProcessingException error) {
            throw new LogSourceException("Expected e.g. {\"topicA\":{\"0\":23,\"1\":-1}}, got " + text, error);
        }
    }

    static Map<String, Set<Integer>> parseAssignment(String text) {
        try {
            Map<String, Set<Integer>> out = new TreeMap<>();
            MAPPER.readValue(text, new TypeReference<Map<String, List<Integer>>>() {})
                    .forEach((topic, partitions) -> out.put(topic, new TreeSet<>(partitions)));
            return out;
        } catch (JsonProcessingException error) {
            throw new LogSourceException("Expected e.g. {\"topicA\":[0,1],\"topicB\":[2]}, got " + text, error);
        }
    }

    static List<String> parsePaths(String text) {
        try {
            return MAPPER.readValue(text, new TypeReference<List<String>>() {});
        } catch (JsonProcessingException error) {
            throw new LogSourceException("Expected a JSON array of paths, got " + text, error);
        }
    }

    static String format(Map<TopicPartition, Long> offsets) {
        Map<String, Map<Integer, Long>> tree = new TreeMap<>();
        offsets.forEach((partition, offset) ->
                tree.computeIfAbsent(partition.topic(), topic -> new TreeMap<>()).put(partition.partition(), offset));
        try {
            return MAPPER.writeValueAsString(tree);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
