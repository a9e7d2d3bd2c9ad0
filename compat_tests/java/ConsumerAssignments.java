import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Assignments of Kafka's RangeAssignor and UniformAssignor. An input line is: assignor, subscription type, topics,
 * members. Topics are id:partitions,...; members are name;instance;topic,topic,...;topic=n/n/n+topic=n, separated by "|"
 * ("-" for none, topics by index). An output line has the name and partitions of each member, sorted by name.
 */
public class ConsumerAssignments {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (in.hasNextLine()) {
            out.append(assign(in.nextLine().split(" "))).append('\n');
        }
        System.out.print(out);
    }

    static String assign(String[] fields) {
        List<Uuid> ids = new ArrayList<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String text : fields[2].split(",")) {
            String[] parts = text.split(":");
            ids.add(Uuid.fromString(parts[0]));
            counts.put(ids.get(ids.size() - 1), Integer.parseInt(parts[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (String text : fields[3].split("\\|")) {
            String[] parts = text.split(";");
            Set<Uuid> subscribed = new LinkedHashSet<>();
            if (!parts[2].equals("-")) {
                for (String index : parts[2].split(",")) subscribed.add(ids.get(Integer.parseInt(index)));
            }
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            if (!parts[3].equals("-")) {
                for (String row : parts[3].split("\\+")) {
                    Uuid id = ids.get(Integer.parseInt(row.split("=")[0]));
                    List<Integer> numbers = Stream.of(row.split("=")[1].split("/")).map(Integer::valueOf).toList();
                    owned.put(id, new HashSet<>(numbers));
                    numbers.forEach(n -> owners.computeIfAbsent(id, x -> new HashMap<>()).put(n, parts[0]));
                }
            }
            Optional<String> instance = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0],
                new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, subscribed, new Assignment(owned)));
        }
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return counts.getOrDefault(id, -1);
            }

            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        PartitionAssignor assignor = fields[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment assignment = assignor.assign(
            new GroupSpecImpl(members, SubscriptionType.valueOf(fields[1]), owners), topics);
        StringJoiner result = new StringJoiner("|");
        for (String name : new TreeSet<>(members.keySet())) {
            StringJoiner row = new StringJoiner("+");
            MemberAssignment memberAssignment = assignment.members().get(name);
            for (int index = 0; index < ids.size(); index++) {
                Set<Integer> numbers = memberAssignment == null ? null : memberAssignment.partitions().get(ids.get(index));
                if (numbers != null && !numbers.isEmpty()) {
                    row.add(index + "=" + new TreeSet<>(numbers).stream().map(String::valueOf)
                        .collect(Collectors.joining("/")));
                }
            }
            result.add(name + ";" + row);
        }
        return result.toString();
    }
}
