import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.*;

/**
 * Places partitions with Kafka's own class. A line in: chance partitions factor id:rack:fenced,id:rack:fenced,...
 * ("-" stands for no rack); a line out: the replicas of each partition, or the name of what was thrown. A random
 * number below n is always chance * n, so that the order in which racks ask for theirs does not matter.
 */
public class Place {
    static class Fixed extends Random {
        final double chance;

        Fixed(double chance) {
            this.chance = chance;
        }

        @Override
        public int nextInt(int bound) {
            return (int) (chance * bound);
        }
    }

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            List<UsableBroker> brokers = new ArrayList<>();
            for (String text : words[3].split(",")) {
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
            PlacementSpec asked = new PlacementSpec(0, Integer.parseInt(words[1]), Short.parseShort(words[2]));
            try {
                Random random = new Fixed(Double.parseDouble(words[0]));
                TopicAssignment placed = new StripedReplicaPlacer(random).place(asked, cluster);
                StringJoiner line = new StringJoiner(" ");
                for (PartitionAssignment partition : placed.assignments()) {
                    line.add(partition.replicas().toString().replaceAll("[\\[\\] ]", ""));
                }
                out.append(line).append('\n');
            } catch (RuntimeException error) {
                out.append(error.getClass().getSimpleName()).append('\n');
            }
        }
        System.out.print(out);
    }
}
