package ottla.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;

/**
 * Checkpoint files of a log directory and of its partitions.
 *
 * <p>Source: {@code CheckpointFile}, {@code OffsetCheckpointFile}, {@code LeaderEpochCheckpointFile},
 * {@code PartitionMetadataFile} (Apache Kafka 4.3.1).
 */
final class CheckpointFiles {
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";
    static final String LOG_START_OFFSETS = "log-start-offset-checkpoint";
    private static final int HEADER_LINES = 2;

    private CheckpointFiles() {}

    /** Return the offsets of a checkpoint file; null if the file is missing. */
    static Map<TopicPartition, Long> readOffsets(Path file) throws IOException {
        List<String> lines = readEntries(file);
        if (lines == null) {
            return null;
        }
        Map<TopicPartition, Long> out = new HashMap<>();
        for (String line : lines) {
            String[] fields = line.split(" ");
            try {
                out.put(new TopicPartition(fields[0], Integer.parseInt(fields[1])), Long.parseLong(fields[2]));
            } catch (NumberFormatException | ArrayIndexOutOfBoundsException error) {
                throw new LogSourceException("Malformed line in checkpoint file " + file + ": " + line, error);
            }
        }
        return out;
    }

    /** Return the leader epochs of a partition with the first offset of each; none without their checkpoint. */
    static TreeMap<Integer, Long> readLeaderEpochs(Path directory) throws IOException {
        Path file = directory.resolve("leader-epoch-checkpoint");
        try {
            return parseLeaderEpochs(file.toString(), Files.readAllLines(file));
        } catch (NoSuchFileException missing) {
            return new TreeMap<>();
        }
    }

    /** Return the leader epochs in the lines of a checkpoint, with the first offset of each. */
    static TreeMap<Integer, Long> parseLeaderEpochs(String name, List<String> lines) {
        TreeMap<Integer, Long> out = new TreeMap<>();
        for (String line : parseEntries(name, lines)) {
            String[] fields = line.split(" ");
            try {
                out.put(Integer.parseInt(fields[0]), Long.parseLong(fields[1]));
            } catch (NumberFormatException | ArrayIndexOutOfBoundsException error) {
                throw new LogSourceException("Malformed line in checkpoint file " + name + ": " + line, error);
            }
        }
        return out;
    }

    /** Return the topic id in the metadata file of a partition; an empty string without one. */
    static String readTopicId(Path directory) throws IOException {
        try {
            for (String line : Files.readAllLines(directory.resolve("partition.metadata"))) {
                if (line.startsWith("topic_id: ")) {
                    return line.substring("topic_id: ".length()).trim();
                }
            }
        } catch (NoSuchFileException missing) {
            return "";
        }
        return "";
    }

    private static List<String> readEntries(Path file) throws IOException {
        try {
            return parseEntries(file.toString(), Files.readAllLines(file));
        } catch (NoSuchFileException missing) {
            return null;
        }
    }

    private static List<String> parseEntries(String name, List<String> lines) {
        if (lines.size() < HEADER_LINES) {
            return List.of();
        }
        List<String> entries = lines.subList(HEADER_LINES, lines.size());
        if (!lines.get(0).equals("0") || !lines.get(1).equals(Integer.toString(entries.size()))) {
            throw new LogSourceException(
                    "Malformed checkpoint file " + name + ": expected version 0 and " + lines.get(1) + " entries");
        }
        return entries;
    }
}
