import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.*;

/**
 * Replicas placed by Kafka's StripedReplicaPlacer. An input line is: fraction partitions replicationFactor
 * id:rack:fenced,id:rack:fenced,... ("-" for no rack). An output line has the replicas of each partition, or the name of
 * the exception. Every random number below n is fraction * n, so that the order of calls for the racks has no effect.
 */
public class ReplicaPlacement {
    static class FixedRandom extends Random {
        final double fraction;

        FixedRandom(double fraction) {
            this.fraction = fraction;
        }

        @Override
        public int nextInt(int bound) {
            return (int) (fraction * bound);
        }
    }

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (in.hasNextLine()) {
            String[] fields = in.nextLine().split(" ");
            List<UsableBroker> brokers = new ArrayList<>();
            for (String text : fields[3].split(",")) {
                String[] parts = text.split(":");
                Optional<String> rack = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
                brokers.add(new UsableBroker(Integer.parseInt(parts[0]), rack, parts[2].equals("1")));
            }
            ClusterDescriber cluster = new ClusterDescriber() {
                public Iterator<UsableBroker> usableBrokers() {
                    return brokers.iterator();
                }

                public Uuid defaultDir(int brokerId) {
                    return new Uuid(0, 1);
                }
            };
            PlacementSpec spec = new PlacementSpec(0, Integer.parseInt(fields[1]), Short.parseShort(fields[2]));
            try {
                Random random = new FixedRandom(Double.parseDouble(fields[0]));
                TopicAssignment assignment = new StripedReplicaPlacer(random).place(spec, cluster);
                StringJoiner result = new StringJoiner(" ");
                for (PartitionAssignment partition : assignment.assignments()) {
                    result.add(partition.replicas().toString().replaceAll("[\\[\\] ]", ""));
                }
                out.append(result).append('\n');
            } catch (RuntimeException error) {
                out.append(error.getClass().getSimpleName()).append('\n');
            }
        }
        System.out.print(out);
    }
}
