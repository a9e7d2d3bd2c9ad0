import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.*;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Records of Kafka's PartitionChangeBuilder. An input line is the present state: replicas isr elr lastKnownElr adding
 * removing directories leader recovering alive minIsr elr? election, then the target state: isr replicas adding removing
 * uncleanShutdown recovery directories. Lists have commas; "-" is no list, "_" an empty one. An output line has the
 * fields of the record: leader isr elr lastKnownElr replicas adding removing directories recovery, or "none". A directory
 * is a number; the default directory of a broker is 900 plus its id.
 */
public class PartitionChanges {
    static List<Integer> list(String text) {
        if (text.equals("_")) return List.of();
        return Arrays.stream(text.split(",")).map(Integer::valueOf).collect(Collectors.toList());
    }

    static int[] array(String text) {
        return list(text).stream().mapToInt(i -> i).toArray();
    }

    static String text(List<Integer> values) {
        if (values == null) return "-";
        if (values.isEmpty()) return "_";
        return values.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    static Uuid dir(int number) {
        return new Uuid(7, number);
    }

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (in.hasNextLine()) out.append(change(in.nextLine().split(" "))).append('\n');
        System.out.print(out);
    }

    static String change(String[] w) {
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(w[0])).setIsr(array(w[1])).setElr(array(w[2])).setLastKnownElr(array(w[3]))
            .setAddingReplicas(array(w[4])).setRemovingReplicas(array(w[5]))
            .setDirectories(list(w[6]).stream().map(PartitionChanges::dir).toArray(Uuid[]::new))
            .setLeader(Integer.valueOf(w[7])).setLeaderEpoch(1).setPartitionEpoch(1)
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(w[8]))).build();
        Set<Integer> alive = new HashSet<>(list(w[9]));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, new Uuid(1, 2), 3, alive::contains, MetadataVersion.fromFeatureLevel((short) 30),
            Integer.parseInt(w[10]), w[11].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(w[12]));
        builder.setDefaultDirProvider(broker -> dir(900 + broker));
        if (!w[13].equals("-")) builder.setTargetIsr(list(w[13]));
        if (!w[14].equals("-")) builder.setTargetReplicas(list(w[14]));
        if (!w[15].equals("-")) builder.setTargetAdding(list(w[15]));
        if (!w[16].equals("-")) builder.setTargetRemoving(list(w[16]));
        if (!w[17].equals("-")) builder.setUncleanShutdownReplicas(list(w[17]));
        if (!w[18].equals("-")) builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(w[18])));
        if (!w[19].equals("-")) {
            for (String pair : w[19].split(",")) {
                builder.setDirectory(Integer.parseInt(pair.split("=")[0]), dir(Integer.parseInt(pair.split("=")[1])));
            }
        }
        return builder.build().map(built -> {
            PartitionChangeRecord r = (PartitionChangeRecord) built.message();
            List<Integer> elr = r.eligibleLeaderReplicas();
            if (elr != null) elr = elr.stream().sorted().toList();
            List<Integer> dirs = r.directories() == null ? null
                : r.directories().stream().map(d -> (int) d.getLeastSignificantBits()).toList();
            return String.join(" ", "" + r.leader(), text(r.isr()), text(elr), text(r.lastKnownElr()),
                text(r.replicas()), text(r.addingReplicas()), text(r.removingReplicas()), text(dirs),
                "" + r.leaderRecoveryState());
        }).orElse("none");
    }
}
