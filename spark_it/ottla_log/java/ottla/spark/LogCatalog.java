package ottla.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;

/**
 * Partitions that a read selects: the most complete replica of each in the log directories, its segments in the remote
 * store, and its end.
 */
final class LogCatalog {
    static final Comparator<TopicPartition> ORDER =
            Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition);
    private static final Pattern PARTITION_DIRECTORY = Pattern.compile("([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})");

    private final LogOptions options;
    private final RemoteCatalog remote;
    final TreeMap<TopicPartition, PartitionLog> logs = new TreeMap<>(ORDER);
    private final Map<TopicPartition, Long> highWatermarks = new HashMap<>();
    private final Map<TopicPartition, Long> endOffsets = new HashMap<>();
    private final Map<TopicPartition, TransactionReplay> transactions = new HashMap<>();

    LogCatalog(LogOptions options) {
        this.options = options;
        remote = options.remoteStore == null ? null : new RemoteCatalog(options);
    }

    /** Read directories and checkpoint files again. */
    void refresh() {
        try {
            TreeMap<TopicPartition, List<PartitionLog>> replicas = new TreeMap<>(ORDER);
            for (String directory : options.logDirs) {
                addReplicas(Path.of(directory), replicas);
            }
            Map<TopicPartition, PartitionLog> earlier = new HashMap<>(logs);
            logs.clear();
            endOffsets.clear();
            transactions.clear();
            highWatermarks.clear();
            for (Map.Entry<TopicPartition, List<PartitionLog>> entry : replicas.entrySet()) {
                for (PartitionLog replica : entry.getValue()) {
                    if (earlier.containsKey(entry.getKey())) {
                        replica.reuseIndexes(earlier.get(entry.getKey()));
                    }
                }
                choose(entry.getKey(), entry.getValue());
            }
            if (remote != null) {
                addRemoteSegments();
            }
            for (PartitionLog log : logs.values()) {
                long highWatermark = highWatermarks.getOrDefault(log.partition, -1L);
                endOffsets.put(log.partition, readableEnd(log, highWatermark));
            }
            checkSelection();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void addReplicas(Path logDir, TreeMap<TopicPartition, List<PartitionLog>> replicas) throws IOException {
        if (!Files.isDirectory(logDir)) {
            throw new LogSourceException("No log directory: " + logDir);
        }
        var highWatermarks = CheckpointFiles.readOffsets(logDir.resolve(CheckpointFiles.HIGH_WATERMARKS));
        var starts = CheckpointFiles.readOffsets(logDir.resolve(CheckpointFiles.LOG_START_OFFSETS));
        try (DirectoryStream<Path> directories = Files.newDirectoryStream(logDir)) {
            for (Path directory : directories) {
                Matcher name = PARTITION_DIRECTORY.matcher(directory.getFileName().toString());
                if (name.matches() && Files.isDirectory(directory)) {
                    TopicPartition partition = new TopicPartition(name.group(1), Integer.parseInt(name.group(2)));
                    if (options.topics.matches(partition.topic(), partition.partition())) {
                        if (highWatermarks == null && !options.readToLogEnd) {
                            throw new LogSourceException("No " + CheckpointFiles.HIGH_WATERMARKS + " in " + logDir
                                    + ": set the option endOfLog to logEndOffset to read without high watermarks");
                        }
                        long start = starts == null ? 0 : starts.getOrDefault(partition, 0L);
                        long end = highWatermarks == null ? -1 : highWatermarks.getOrDefault(partition, -1L);
                        PartitionLog log = new PartitionLog(partition, directory, start, end, options.skipDamagedBatches);
                        replicas.computeIfAbsent(partition, key -> new ArrayList<>()).add(log);
                    }
                }
            }
        }
    }

    private void choose(TopicPartition partition, List<PartitionLog> replicas) throws IOException {
        long highWatermark = -1;
        for (PartitionLog replica : replicas) {
            if (!replica.topicId.equals(replicas.get(0).topicId)) {
                throw new LogSourceException("Different topics of the name " + partition.topic() + ": "
                        + replicas.get(0).directory + " has topic id " + replicas.get(0).topicId + ", "
                        + replica.directory + " has topic id " + replica.topicId);
            }
            highWatermark = Math.max(highWatermark, replica.checkpointedHighWatermark);
        }
        PartitionLog best = replicas.get(0);
        for (PartitionLog replica : replicas.subList(1, replicas.size())) {
            if (compare(replica, best, highWatermark) > 0) {
                best = replica;
            }
        }
        logs.put(partition, best);
        highWatermarks.put(partition, highWatermark);
    }

    /** Add the remote segments below the local ones of each log, and the logs that are only in the remote store. */
    private void addRemoteSegments() throws IOException {
        remote.refresh();
        Map<String, String> idOfTopic = remote.topicIds();
        logs.values().forEach(log -> idOfTopic.put(log.partition.topic(), log.topicId));
        List<PartitionLog> begun =
                logs.values().stream().filter(PartitionLog::beginsBelowLocalSegments).toList();
        List<PartitionLog> remoteOnly = new ArrayList<>();
        for (Map.Entry<String, String> entry : idOfTopic.entrySet()) {
            for (TopicPartition partition : remote.partitions(entry.getValue())) {
                if (!logs.containsKey(partition)) {
                    remoteOnly.add(new PartitionLog(partition, entry.getValue(), new TreeMap<>(), options));
                }
            }
        }
        remote.describe(Stream.concat(begun.stream(), remoteOnly.stream()).toList());
        for (PartitionLog log : begun) {
            log.addRemote(
                    remote.objectsOf(
                            log.partition,
                            log.topicId,
                            new LeaderEpochs(log.leaderEpochs),
                            log.checkpointedStart(),
                            log.localStartOffset(),
                            log.logEndOffset()),
                    options);
        }
        for (PartitionLog log : remoteOnly) {
            if (!options.logDirs.isEmpty()) {
                reportDataLoss("Partition " + log.partition + " is in " + options.remoteStore.url + ", but not in "
                        + options.logDirs + ": its records that were not copied are missing");
            }
            log.addRemote(remote.objectsOf(log.partition, log.topicId), options);
            if (!log.segments.isEmpty()) {
                logs.put(log.partition, log);
            }
        }
    }

    /** Compare two replicas: a later leader epoch, then more offsets below the high watermark, then an earlier start. */
    private int compare(PartitionLog one, PartitionLog other, long highWatermark) throws IOException {
        if (one.lastEpoch() != other.lastEpoch()) {
            return Integer.compare(one.lastEpoch(), other.lastEpoch());
        }
        long limit = options.readToLogEnd ? Long.MAX_VALUE : highWatermark;
        int byEnd = Long.compare(Math.min(one.logEndOffset(), limit), Math.min(other.logEndOffset(), limit));
        return byEnd != 0 ? byEnd : Long.compare(other.logStartOffset, one.logStartOffset);
    }

    private long readableEnd(PartitionLog log, long highWatermark) throws IOException {
        long logEnd = log.logEndOffset();
        boolean isReadToEnd = options.readToLogEnd || log.directory == null;
        long end = isReadToEnd ? logEnd : Math.max(highWatermark, log.logStartOffset);
        if (end > logEnd) {
            reportDataLoss("High watermark " + end + " of " + log.partition + " is beyond the end of its log, "
                    + logEnd + " in " + log.directory + log.damageAtEnd());
            end = logEnd;
        }
        if (options.isReadCommitted) {
            TransactionReplay replay = new TransactionReplay(log, options);
            transactions.put(log.partition, replay);
            end = replay.lastStableOffset(end);
        }
        return end;
    }

    private void checkSelection() {
        Map<String, Integer> found = new TreeMap<>();
        logs.keySet().forEach(partition -> found.merge(partition.topic(), 1, Integer::sum));
        for (String topic : options.topics.topics) {
            if (!found.containsKey(topic)) {
                throw new LogSourceException("No partition of topic " + topic + " in " + options.places());
            }
        }
        options.topics.assigned.forEach((topic, partitions) -> partitions.forEach(partition -> {
            if (!logs.containsKey(new TopicPartition(topic, partition))) {
                throw new LogSourceException("No partition " + topic + "-" + partition + " in " + options.places());
            }
        }));
        if (options.topics.assigned.isEmpty() && !options.logDirs.isEmpty()) {
            logs.keySet().forEach(partition -> {
                if (partition.partition() >= found.get(partition.topic())) {
                    reportDataLoss("Partition " + partition + " is in " + options.logDirs
                            + ", but not all partitions below it: a log directory may be missing");
                }
            });
        }
    }

    /** Return the high watermark of a partition, its last stable offset or its log end offset, depending on the options. */
    long endOffset(TopicPartition partition) {
        return endOffsets.get(partition);
    }

    AbortedTransactions abortedTransactions(TopicPartition partition, long start, long end) throws IOException {
        TransactionReplay replay = transactions.get(partition);
        return replay == null ? AbortedTransactions.NONE : replay.abortedTransactions(start, end);
    }

    /** Raise an error if {@code failOnDataLoss} is set, else log the message. */
    void reportDataLoss(String message) {
        DataLoss.report(message, options);
    }
}
