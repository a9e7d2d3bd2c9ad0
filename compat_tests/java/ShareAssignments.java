import java.io.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Assignments of Kafka's SimpleAssignor for share groups. An input line is: 1 for equal subscriptions, else 0; topics as
 * number/partitions/initialized; then a field per member: name=topics=current assignment as topic:partitions. Topics are
 * numbers separated by ";", partitions by ",". An output line has the members in order and their sorted partitions.
 */
public class ShareAssignments {
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
                Set<Uuid> subscribed = new HashSet<>();
                List<Uuid> order = new ArrayList<>();
                for (String topic : m[1].split(";")) if (!topic.isEmpty()) order.add(id(topic));
                subscribed = new HashSet<>(order);
                members.put(m[0], new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), subscribed, new Assignment(parts(m[2]))));
            }
            SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
                public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
                public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
            };
            StringBuilder out = new StringBuilder();
            try {
                GroupSpec spec = new GroupSpecImpl(members, w[0].equals("1") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, Map.of(), Optional.of(ready));
                Map<String, MemberAssignment> assignments = new SimpleAssignor().assign(spec, topics).members();
                for (String name : members.keySet()) {
                    out.append(name).append("=");
                    MemberAssignment memberAssignment = assignments.get(name);
                    Map<String, Set<Integer>> rows = new TreeMap<>();
                    if (memberAssignment != null) memberAssignment.partitions().forEach((id, numbers) -> rows.put(names.getOrDefault(id, "?"), numbers));
                    rows.forEach((topic, numbers) -> { if (!numbers.isEmpty()) out.append(topic).append(":").append(new TreeSet<>(numbers)).append(";"); });
                    out.append(" ");
                }
            } catch (NoSuchElementException e) {
                out.append("no members");
            }
            System.out.println(out.toString().trim().replace(", ", ","));
        }
    }
}
