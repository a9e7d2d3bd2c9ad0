import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Deals out partitions with Kafka's own assignors. A line in: assignor type topics members, where topics are
 * id:partitions,... and members are name;instance;topic,topic,...;topic=n/n/n+topic=n ("-" for none, topics by their
 * place), set apart by "|". A line out: each member's name and partitions, in the order of names.
 */
public class Assign {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (in.hasNextLine()) {
            out.append(answer(in.nextLine().split(" "))).append('\n');
        }
        System.out.print(out);
    }

    static String answer(String[] words) {
        List<Uuid> ids = new ArrayList<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String text : words[2].split(",")) {
            String[] parts = text.split(":");
            ids.add(Uuid.fromString(parts[0]));
            counts.put(ids.get(ids.size() - 1), Integer.parseInt(parts[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (String text : words[3].split("\\|")) {
            String[] parts = text.split(";");
            Set<Uuid> wanted = new LinkedHashSet<>();
            if (!parts[2].equals("-")) {
                for (String place : parts[2].split(",")) wanted.add(ids.get(Integer.parseInt(place)));
            }
            Map<Uuid, Set<Integer>> had = new HashMap<>();
            if (!parts[3].equals("-")) {
                for (String row : parts[3].split("\\+")) {
                    Uuid id = ids.get(Integer.parseInt(row.split("=")[0]));
                    List<Integer> numbers = Stream.of(row.split("=")[1].split("/")).map(Integer::valueOf).toList();
                    had.put(id, new HashSet<>(numbers));
                    numbers.forEach(n -> owners.computeIfAbsent(id, x -> new HashMap<>()).put(n, parts[0]));
                }
            }
            Optional<String> instance = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0],
                new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, wanted, new Assignment(had)));
        }
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return counts.getOrDefault(id, -1);
            }

            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        PartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment given = assignor.assign(
            new GroupSpecImpl(members, SubscriptionType.valueOf(words[1]), owners), topics);
        StringJoiner line = new StringJoiner("|");
        for (String name : new TreeSet<>(members.keySet())) {
            StringJoiner row = new StringJoiner("+");
            MemberAssignment one = given.members().get(name);
            for (int place = 0; place < ids.size(); place++) {
                Set<Integer> numbers = one == null ? null : one.partitions().get(ids.get(place));
                if (numbers != null && !numbers.isEmpty()) {
                    row.add(place + "=" + new TreeSet<>(numbers).stream().map(String::valueOf)
                        .collect(Collectors.joining("/")));
                }
            }
            line.add(name + ";" + row);
        }
        return line.toString();
    }
}
