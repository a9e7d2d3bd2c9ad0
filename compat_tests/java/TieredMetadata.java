import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

/** Runs commands from stdin, one per line, with Kafka's classes for remote log metadata; prints a result line for each. */
public class TieredMetadata {
    private static RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    private static Object call(Object target, Class<?> cls, String name, Class<?>[] types, Object... values)
            throws Exception {
        Method method = cls.getDeclaredMethod(name, types);
        method.setAccessible(true);
        try {
            return method.invoke(target, values);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    private static Object call(String name, Class<?>[] types, Object... values) throws Exception {
        return call(cache, RemoteLogMetadataCache.class, name, types, values);
    }

    private static String id(RemoteLogSegmentMetadata metadata) {
        Uuid id = metadata.remoteLogSegmentId().id();
        return String.format("%08x", (int) (id.getMostSignificantBits() >>> 32)) + ":" + metadata.state().id();
    }

    private static String segment(Object found) {
        Optional<?> metadata = (Optional<?>) found;
        return metadata.isEmpty() ? "-" : id((RemoteLogSegmentMetadata) metadata.get());
    }

    private static String list(Object found) {
        List<RemoteLogSegmentMetadata> all = new ArrayList<>();
        ((Iterator<?>) found).forEachRemaining(each -> all.add((RemoteLogSegmentMetadata) each));
        all.sort(Comparator.comparingLong(RemoteLogSegmentMetadata::startOffset)
            .thenComparing(TieredMetadata::id));
        return String.join(" ", all.stream().map(TieredMetadata::id).toList());
    }

    private static NavigableMap<Integer, Long> epochs(String text) {
        NavigableMap<Integer, Long> map = new TreeMap<>();
        for (String pair : text.split(",")) {
            map.put(Integer.parseInt(pair.split(":")[0]), Long.parseLong(pair.split(":")[1]));
        }
        return map;
    }

    private static String record(byte[] raw) throws Exception {
        RemoteLogMetadata record;
        try {
            record = SERDE.deserialize(raw);
        } catch (Exception error) {
            return "rejected";
        }
        String hex = HexFormat.of().formatHex(SERDE.serialize(record));
        try {
            if (record instanceof RemoteLogSegmentMetadata) {
                call("addCopyInProgressSegment", new Class<?>[] {RemoteLogSegmentMetadata.class}, record);
            } else if (record instanceof RemoteLogSegmentMetadataUpdate) {
                call("updateRemoteLogSegmentMetadata", new Class<?>[] {RemoteLogSegmentMetadataUpdate.class}, record);
            }
        } catch (Exception error) {
            return hex + " " + error.getClass().getSimpleName();
        }
        return hex + " ok";
    }

    private static boolean within(String[] fields) throws Exception {
        RemoteLogSegmentMetadata metadata =
            (RemoteLogSegmentMetadata) SERDE.deserialize(HexFormat.of().parseHex(fields[1]));
        NavigableMap<?, ?> filtered = (NavigableMap<?, ?>) call(null, RemoteLogManager.class,
            "buildFilteredLeaderEpochMap", new Class<?>[] {NavigableMap.class}, epochs(fields[3]));
        return (boolean) call(null, RemoteLogManager.class, "isRemoteSegmentWithinLeaderEpochs",
            new Class<?>[] {RemoteLogSegmentMetadata.class, long.class, NavigableMap.class},
            metadata, Long.parseLong(fields[2]), filtered);
    }

    private static String execute(String[] fields) throws Exception {
        Class<?>[] epochAndOffset = {int.class, long.class};
        switch (fields[0]) {
            case "reset":
                cache = new RemoteLogMetadataCache();
                return "ok";
            case "initialize":
                call("markInitialized", new Class<?>[] {});
                return "ok";
            case "record":
                return record(HexFormat.of().parseHex(fields[1]));
            case "segment":
                return segment(call("remoteLogSegmentMetadata", epochAndOffset,
                    Integer.parseInt(fields[1]), Long.parseLong(fields[2])));
            case "txn":
                return segment(call("nextSegmentWithTxnIndex", epochAndOffset,
                    Integer.parseInt(fields[1]), Long.parseLong(fields[2])));
            case "highest":
                Optional<?> highest = (Optional<?>) call("highestOffsetForEpoch", new Class<?>[] {int.class},
                    Integer.parseInt(fields[1]));
                return highest.isEmpty() ? "-" : highest.get().toString();
            case "list":
                return list(call("listRemoteLogSegments", new Class<?>[] {int.class}, Integer.parseInt(fields[1])));
            case "all":
                return list(call("listAllRemoteLogSegments", new Class<?>[] {}));
            case "within":
                return Boolean.toString(within(fields));
            default:
                ByteBuffer uuid = ByteBuffer.wrap(HexFormat.of().parseHex(fields[1]));
                TopicIdPartition partition = new TopicIdPartition(new Uuid(uuid.getLong(), uuid.getLong()),
                    new TopicPartition("t", Integer.parseInt(fields[2])));
                return Integer.toString(new RemoteLogMetadataTopicPartitioner(Integer.parseInt(fields[3]))
                    .metadataPartition(partition));
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(execute(line.split(" ")));
        }
    }
}
