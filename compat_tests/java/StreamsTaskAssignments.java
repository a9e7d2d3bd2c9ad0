import java.io.*;
import java.util.*;
import org.apache.kafka.coordinator.group.streams.assignor.*;

/**
 * Assignments of Kafka's StickyTaskAssignor. An input line is: number of standby replicas; subtopologies as id:tasks:1 if
 * stateful, separated by ";"; then a field per member: name=process=active=standby, with tasks as id:partitions separated
 * by ";". An output line has the members in order with their active and standby tasks.
 */
public class StreamsTaskAssignments {
    static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> out = new HashMap<>();
        for (String part : text.split(";")) {
            if (part.isEmpty()) continue;
            String[] w = part.split(":", -1);
            Set<Integer> numbers = new HashSet<>();
            for (String n : w[1].split(",")) numbers.add(Integer.valueOf(n));
            out.put(w[0], numbers);
        }
        return out;
    }

    static String format(Map<String, Set<Integer>> tasks) {
        StringBuilder out = new StringBuilder();
        new TreeMap<>(tasks).forEach((id, numbers) -> out.append(id).append(":").append(new TreeSet<>(numbers)).append(";"));
        return out.toString().replace(" ", "");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ", -1);
            TreeMap<String, Integer> counts = new TreeMap<>();
            Set<String> stateful = new HashSet<>();
            for (String part : w[1].split(";")) {
                String[] s = part.split(":");
                counts.put(s[0], Integer.valueOf(s[1]));
                if (s[2].equals("1")) stateful.add(s[0]);
            }
            Map<String, AssignmentMemberSpec> members = new HashMap<>();
            for (int i = 2; i < w.length; i++) {
                String[] m = w[i].split("=", -1);
                members.put(m[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(m[2]), tasks(m[3]),
                    Map.of(), m[1], Map.of(), Map.of(), Map.of()));
            }
            TopologyDescriber topology = new TopologyDescriber() {
                public List<String> subtopologies() { return new ArrayList<>(counts.keySet()); }
                public int maxNumInputPartitions(String id) { return counts.get(id); }
                public boolean isStateful(String id) { return stateful.contains(id); }
            };
            GroupSpec spec = new GroupSpecImpl(members, Map.of("num.standby.replicas", w[0]));
            Map<String, MemberAssignment> assignments = new StickyTaskAssignor().assign(spec, topology).members();
            StringBuilder out = new StringBuilder();
            for (String name : members.keySet()) {
                MemberAssignment memberAssignment = assignments.get(name);
                out.append(name).append("=").append(format(memberAssignment.activeTasks())).append("=").append(format(memberAssignment.standbyTasks())).append(" ");
            }
            System.out.println(out.toString().trim());
        }
    }
}
