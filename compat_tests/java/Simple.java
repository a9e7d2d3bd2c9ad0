import java.io.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Shares partitions out with Kafka's own class. A line in: 1 where all want the same, else 0; topics as number:count of
 * partitions:initialised ones; then a word for each member: name=topics=old target, as topic:partitions. Topics are
 * numbers, parted by ";", partitions by ",". A line out: the members in order with what they get, in order.
 */
public class Simple {
    static Uuid id(String number) {
        return new Uuid(Long.parseLong(number) * 0x9E3779B97F4A7C15L, Long.parseLong(number));
    }

    static Map<Uuid, Set<Integer>> parts(String text) {
        Map<Uuid, Set<Integer>> out = new HashMap<>();
        for (String part : text.split(";")) {
            if (part.isEmpty()) continue;
            String[] w = part.split(":", -1);
            List<Integer> numbers = new ArrayList<>();
            for (String n : w[1].split(",")) if (!n.isEmpty()) numbers.add(Integer.valueOf(n));
            out.put(id(w[0]), new HashSet<>(numbers));
        }
        return out;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ", -1);
            Map<Uuid, Integer> counts = new HashMap<>();
            Map<Uuid, Set<Integer>> ready = new HashMap<>();
            Map<Uuid, String> names = new HashMap<>();
            for (String topic : w[1].split(";")) {
                String[] t = topic.split("/");
                counts.put(id(t[0]), Integer.valueOf(t[1]));
                names.put(id(t[0]), t[0]);
                ready.putAll(parts(t[0] + ":" + (t.length > 2 ? t[2] : "")));
            }
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            for (int i = 2; i < w.length; i++) {
                String[] m = w[i].split("=", -1);
                Set<Uuid> wanted = new HashSet<>();
                List<Uuid> order = new ArrayList<>();
                for (String topic : m[1].split(";")) if (!topic.isEmpty()) order.add(id(topic));
                wanted = new HashSet<>(order);
                members.put(m[0], new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), wanted, new Assignment(parts(m[2]))));
            }
            SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
                public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
                public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
            };
            StringBuilder out = new StringBuilder();
            try {
                GroupSpec spec = new GroupSpecImpl(members, w[0].equals("1") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, Map.of(), Optional.of(ready));
                Map<String, MemberAssignment> done = new SimpleAssignor().assign(spec, topics).members();
                for (String name : members.keySet()) {
                    out.append(name).append("=");
                    MemberAssignment got = done.get(name);
                    Map<String, Set<Integer>> rows = new TreeMap<>();
                    if (got != null) got.partitions().forEach((id, numbers) -> rows.put(names.getOrDefault(id, "?"), numbers));
                    rows.forEach((topic, numbers) -> { if (!numbers.isEmpty()) out.append(topic).append(":").append(new TreeSet<>(numbers)).append(";"); });
                    out.append(" ");
                }
            } catch (NoSuchElementException e) {
                out.append("nobody left");
            }
            System.out.println(out.toString().trim().replace(", ", ","));
        }
    }
}
