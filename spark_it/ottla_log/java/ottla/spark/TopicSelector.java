package ottla.spark;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;

/** Topics or partitions of a read: one of {@code subscribe}, {@code subscribePattern} and {@code assign}. */
final class TopicSelector implements Serializable {
    private static final long serialVersionUID = 1;
    private static final Set<String> INTERNAL_TOPICS =
            Set.of("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata");

    private final String option;
    private final String text;
    final Set<String> topics;
    private final Pattern pattern;
    final Map<String, Set<Integer>> assigned;

    TopicSelector(String option, String text) {
        this.option = option;
        this.text = text;
        pattern = option.equals("subscribePattern") ? Pattern.compile(text) : null;
        assigned = option.equals("assign") ? OffsetsJson.parseAssignment(text) : Map.of();
        topics = new TreeSet<>(assigned.keySet());
        if (option.equals("subscribe")) {
            Arrays.stream(text.split(",")).map(String::trim).filter(topic -> !topic.isEmpty()).forEach(topics::add);
        }
        if (pattern == null && topics.isEmpty()) {
            throw new LogSourceException("No topics or partitions: option " + option + " is " + text);
        }
    }

    boolean matches(String topic, int partition) {
        if (pattern != null) {
            return !INTERNAL_TOPICS.contains(topic) && pattern.matcher(topic).matches();
        }
        return topics.contains(topic) && (assigned.isEmpty() || assigned.get(topic).contains(partition));
    }

    @Override
    public String toString() {
        return option + "[" + text + "]";
    }
}
