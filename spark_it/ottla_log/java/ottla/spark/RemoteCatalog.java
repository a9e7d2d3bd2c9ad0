package ottla.spark;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FileStatus;
import org.apache.kafka.common.TopicPartition;
import ottla.spark.SegmentFormat.CorruptObject;

/** Segment objects of the topics that a read selects, and those of them that belong to a log. */
final class RemoteCatalog {
    private static final int THREADS = 16;
    private static final Pattern PARTITION = Pattern.compile("0|[1-9][0-9]{0,9}");
    private static final Pattern OBJECT = Pattern.compile("([0-9]{20})-[a-zA-Z0-9_-]{22}\\.segment");
    private static final Comparator<SegmentObject> BEST = Comparator.comparing(SegmentObject::endOffset)
            .thenComparing(SegmentObject::eventTimestampMs)
            .thenComparing(SegmentObject::name);

    private final LogOptions options;
    private final RemoteStore store;

    /** Listed objects by topic id and partition. */
    private final Map<String, TreeMap<TopicPartition, List<Listed>>> listed = new TreeMap<>();

    private Map<String, SegmentObject> described = new HashMap<>();

    RemoteCatalog(LogOptions options) {
        this.options = options;
        store = options.remoteStore;
    }

    /** Object in a listing of the store. */
    private record Listed(String name, long startOffset, long objectBytes) {}

    /** Read the names of the objects again. */
    void refresh() throws IOException {
        listed.clear();
        store.checkExists();
        for (String topic : options.topics.topics.isEmpty() ? names("") : options.topics.topics) {
            for (String topicId : names(topic)) {
                for (String number : names(topic + "/" + topicId)) {
                    if (PARTITION.matcher(number).matches() && options.topics.matches(topic, Integer.parseInt(number))) {
                        list(topic, topicId, Integer.parseInt(number));
                    }
                }
            }
        }
    }

    private List<String> names(String directory) throws IOException {
        return store.list(directory).stream()
                .filter(FileStatus::isDirectory)
                .map(status -> status.getPath().getName())
                .toList();
    }

    /** List the objects of a partition again. */
    void list(String topic, String topicId, int partition) throws IOException {
        String directory = topic + "/" + topicId + "/" + partition;
        List<Listed> objects = new ArrayList<>();
        for (FileStatus status : store.list(directory)) {
            String file = status.getPath().getName();
            Matcher name = OBJECT.matcher(file);
            if (name.matches() && status.isFile()) {
                objects.add(new Listed(directory + "/" + file, Long.parseLong(name.group(1)), status.getLen()));
            }
        }
        if (!objects.isEmpty()) {
            listed.computeIfAbsent(topicId, id -> new TreeMap<>(LogCatalog.ORDER))
                    .put(new TopicPartition(topic, partition), objects);
        }
    }

    /** Return the listed partitions of a topic id. */
    Collection<TopicPartition> partitions(String topicId) {
        return listed.getOrDefault(topicId, new TreeMap<>()).keySet();
    }

    /**
     * Return the topic ids by topic. Of topics with the same name, of which one was deleted and created again, that with
     * the last copy is chosen.
     */
    Map<String, String> topicIds() throws IOException {
        Map<String, List<String>> candidates = new TreeMap<>();
        listed.forEach((id, partitions) ->
                candidates.computeIfAbsent(partitions.firstKey().topic(), topic -> new ArrayList<>()).add(id));
        Map<String, String> out = new TreeMap<>();
        for (Map.Entry<String, List<String>> entry : candidates.entrySet()) {
            List<String> ids = entry.getValue();
            out.put(entry.getKey(), ids.size() == 1 ? ids.get(0) : lastCopied(entry.getKey(), ids));
        }
        return out;
    }

    private String lastCopied(String topic, List<String> ids) throws IOException {
        String last = ids.get(0);
        long lastMs = -1;
        for (String id : ids) {
            List<Listed> objects = listed.get(id).values().stream().flatMap(List::stream).toList();
            for (SegmentObject object : describe(objects)) {
                if (object.eventTimestampMs() > lastMs) {
                    lastMs = object.eventTimestampMs();
                    last = id;
                }
            }
        }
        DataLoss.warn("Topic " + topic + " has the ids " + ids + " in " + store.url + ": " + last
                + " is read, which has the last copy");
        return last;
    }

    /** Read the descriptors of the objects of several logs at once, so that later calls find them. */
    void describe(Collection<PartitionLog> logs) throws IOException {
        List<Listed> wanted = new ArrayList<>();
        logs.forEach(log -> wanted.addAll(below(log.partition, log.topicId, log.localStartOffset())));
        Map<String, SegmentObject> found = new HashMap<>();
        describe(wanted).forEach(object -> found.put(object.name(), object));
        described = found;
    }

    private List<Listed> below(TopicPartition partition, String topicId, long endOffset) {
        return listed.getOrDefault(topicId, new TreeMap<>()).getOrDefault(partition, List.of()).stream()
                .filter(object -> object.startOffset() < endOffset)
                .toList();
    }

    /**
     * Return the objects of a log with local segments that have offsets of a range, by the first offset that is to be
     * read from each.
     */
    TreeMap<Long, SegmentObject> objectsOf(
            TopicPartition partition, String topicId, LeaderEpochs epochs, long startOffset, long endOffset, long logEnd)
            throws IOException {
        List<SegmentObject> own = describe(below(partition, topicId, endOffset)).stream()
                .filter(object -> epochs.contain(object, logEnd))
                .toList();
        return cover(own, startOffset, endOffset);
    }

    /** Return the objects of a log without local segments: those of the leader epochs of its newest segment. */
    TreeMap<Long, SegmentObject> objectsOf(TopicPartition partition, String topicId) throws IOException {
        List<SegmentObject> all = describe(below(partition, topicId, Long.MAX_VALUE));
        if (all.isEmpty()) {
            return new TreeMap<>();
        }
        SegmentObject newest = all.stream()
                .max(Comparator.<SegmentObject, Integer>comparing(object -> object.leaderEpochs().lastKey())
                        .thenComparing(BEST))
                .orElseThrow();
        long end = newest.endOffset() + 1;
        LeaderEpochs epochs = new LeaderEpochs(leaderEpochs(newest));
        return cover(all.stream().filter(object -> epochs.contain(object, end)).toList(), 0, end);
    }

    private Map<Integer, Long> leaderEpochs(SegmentObject object) throws IOException {
        RemoteSegment segment = new RemoteSegment(object, options);
        byte[] raw = segment.readPart(SegmentObject.LEADER_EPOCH).orElse(RemoteSegment.NO_BYTES);
        List<String> lines = new String(raw).lines().toList();
        TreeMap<Integer, Long> epochs = CheckpointFiles.parseLeaderEpochs(segment.path(), lines);
        epochs.putAll(object.leaderEpochs().tailMap(epochs.isEmpty() ? -1 : epochs.lastKey(), false));
        return epochs;
    }

    /** Return the fewest objects that cover a range, in order; gaps remain where no object has an offset. */
    private static TreeMap<Long, SegmentObject> cover(List<SegmentObject> objects, long startOffset, long endOffset) {
        List<SegmentObject> sorted = new ArrayList<>(objects);
        sorted.sort(Comparator.comparing(SegmentObject::startOffset));
        TreeMap<Long, SegmentObject> out = new TreeMap<>();
        long next = startOffset;
        int number = 0;
        while (next < endOffset) {
            SegmentObject best = null;
            while (number < sorted.size() && sorted.get(number).startOffset() <= next) {
                SegmentObject each = sorted.get(number++);
                if (each.endOffset() >= next && (best == null || BEST.compare(each, best) > 0)) {
                    best = each;
                }
            }
            if (best != null) {
                out.put(out.isEmpty() ? best.startOffset() : next, best);
                next = best.endOffset() + 1;
            } else if (number < sorted.size()) {
                next = sorted.get(number).startOffset();
            } else {
                break;
            }
        }
        return out;
    }

    /** Return the descriptions of objects, known ones or read from the store; a deleted object has none. */
    private List<SegmentObject> describe(List<Listed> objects) throws IOException {
        List<SegmentObject> out = new ArrayList<>();
        List<Listed> unknown = new ArrayList<>();
        for (Listed object : objects) {
            SegmentObject found = described.get(object.name());
            if (found == null || found.objectBytes() != object.objectBytes()) {
                unknown.add(object);
            } else {
                out.add(found);
            }
        }
        if (unknown.isEmpty()) {
            return out;
        }
        ExecutorService threads = Executors.newFixedThreadPool(Math.min(THREADS, unknown.size()));
        try {
            List<Future<SegmentObject>> futures =
                    unknown.stream().map(object -> threads.submit(() -> describe(object))).toList();
            for (Future<SegmentObject> future : futures) {
                SegmentObject found = get(future);
                if (found != null) {
                    described.put(found.name(), found);
                    out.add(found);
                }
            }
        } finally {
            threads.shutdownNow();
        }
        return out;
    }

    private SegmentObject describe(Listed object) throws IOException {
        try {
            return SegmentFormat.describe(store, object.name(), object.objectBytes());
        } catch (NoSuchFileException deleted) {
            return null;
        } catch (CorruptObject damage) {
            DataLoss.reportDamage(
                    "Damaged object: " + store.pathOf(object.name()) + ": " + damage.getMessage(), options);
            return null;
        }
    }

    private static SegmentObject get(Future<SegmentObject> future) throws IOException {
        try {
            return future.get();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof IOException failed) {
                throw failed;
            }
            throw error.getCause() instanceof RuntimeException failed ? failed : new IllegalStateException(error);
        }
    }
}
