package ottla.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Options of a read, checked; those of Spark's Kafka connector have its names and meaning. */
final class LogOptions implements Serializable {
    private static final long serialVersionUID = 1;
    private static final List<String> SELECTORS = List.of("subscribe", "subscribePattern", "assign");
    private static final Set<String> NAMES = Set.of(
            "path", "paths", "logdirs", "remotestore", "subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets",
            "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp",
            "startingoffsetsbytimestampstrategy", "includeheaders", "isolation.level", "failondataloss",
            "skipdamagedbatches", "minpartitions", "maxbytesperpartition", "maxoffsetspertrigger", "endoflog");

    final List<String> logDirs;

    /** Remote store of tiered storage; null without one. */
    final RemoteStore remoteStore;

    final TopicSelector topics;
    final OffsetSpec starting;
    final OffsetSpec ending;
    final OffsetSpec streamStarting;
    final boolean useLatestWithoutTimestamp;
    final boolean includeHeaders;
    final boolean isReadCommitted;
    final boolean failOnDataLoss;
    final boolean skipDamagedBatches;
    final boolean readToLogEnd;
    final int minPartitions;
    final long maxBytesPerPartition;
    final long maxOffsetsPerTrigger;

    LogOptions(CaseInsensitiveStringMap map) {
        for (String name : map.keySet()) {
            String lower = name.toLowerCase(Locale.ROOT);
            if (!NAMES.contains(lower) && !lower.startsWith("kafka.")) {
                throw new LogSourceException("Unknown option: " + name + ", expected one of " + new TreeSet<>(NAMES));
            }
        }
        remoteStore = map.containsKey("remoteStore") ? new RemoteStore(map.get("remoteStore")) : null;
        logDirs = logDirs(map, remoteStore == null);
        topics = selector(map);
        starting = start(map, OffsetSpec.EARLIEST);
        streamStarting = start(map, OffsetSpec.LATEST);
        ending = end(map);
        useLatestWithoutTimestamp =
                oneOf(map, "startingOffsetsByTimestampStrategy", "error", "latest").equals("latest");
        includeHeaders = map.getBoolean("includeHeaders", false);
        String level = map.containsKey("isolation.level") ? "isolation.level" : "kafka.isolation.level";
        isReadCommitted = oneOf(map, level, "read_uncommitted", "read_committed").equals("read_committed");
        failOnDataLoss = map.getBoolean("failOnDataLoss", true);
        skipDamagedBatches = map.getBoolean("skipDamagedBatches", false);
        readToLogEnd = oneOf(map, "endOfLog", "highWatermark", "logEndOffset").equals("logEndOffset");
        minPartitions = map.getInt("minPartitions", 0);
        maxBytesPerPartition = positive(map, "maxBytesPerPartition", 128L << 20);
        maxOffsetsPerTrigger = positive(map, "maxOffsetsPerTrigger", Long.MAX_VALUE);
    }

    /** Return the directories and the store, for messages. */
    String places() {
        if (remoteStore == null) {
            return logDirs.toString();
        }
        return logDirs.isEmpty() ? remoteStore.url : logDirs + " and " + remoteStore.url;
    }

    private static long positive(CaseInsensitiveStringMap map, String option, long otherwise) {
        long value = map.getLong(option, otherwise);
        if (value <= 0) {
            throw new LogSourceException("Invalid value " + value + " for option " + option + ": must be positive");
        }
        return value;
    }

    /** Return the value of an option that has two values, the first of which is the default. */
    private static String oneOf(CaseInsensitiveStringMap map, String option, String first, String second) {
        String value = map.getOrDefault(option, first);
        for (String allowed : List.of(first, second)) {
            if (allowed.equalsIgnoreCase(value)) {
                return allowed;
            }
        }
        String message = "Invalid value %s for option %s: must be %s or %s";
        throw new LogSourceException(String.format(message, value, option, first, second));
    }

    private static List<String> logDirs(CaseInsensitiveStringMap map, boolean isRequired) {
        List<String> out = new ArrayList<>();
        if (map.containsKey("paths")) {
            out.addAll(OffsetsJson.parsePaths(map.get("paths")));
        }
        if (map.containsKey("path")) {
            out.add(map.get("path"));
        }
        if (map.containsKey("logDirs")) {
            Arrays.stream(map.get("logDirs").split(",")).map(String::trim).forEach(out::add);
        }
        if (out.isEmpty() && isRequired) {
            throw new LogSourceException(
                    "No log directory: pass a path to load, or set the option logDirs or remoteStore");
        }
        return out.stream().map(path -> path.startsWith("file:") ? path.replaceFirst("^file:/*", "/") : path).toList();
    }

    private static TopicSelector selector(CaseInsensitiveStringMap map) {
        List<String> present = SELECTORS.stream().filter(map::containsKey).toList();
        if (present.size() != 1) {
            throw new LogSourceException("One of the options subscribe, subscribePattern, assign must be set");
        }
        return new TopicSelector(present.get(0), map.get(present.get(0)));
    }

    private static OffsetSpec start(CaseInsensitiveStringMap map, long otherwise) {
        OffsetSpec byTime = byTime(map, "starting", true);
        return byTime != null ? byTime : byOffset(map, "startingOffsets", true, otherwise);
    }

    private static OffsetSpec end(CaseInsensitiveStringMap map) {
        OffsetSpec byTime = byTime(map, "ending", false);
        return byTime != null ? byTime : byOffset(map, "endingOffsets", false, OffsetSpec.LATEST);
    }

    private static OffsetSpec byTime(CaseInsensitiveStringMap map, String prefix, boolean isStart) {
        String everywhere = prefix + "Timestamp";
        if (map.containsKey(everywhere)) {
            return new OffsetSpec(everywhere, isStart, map.getLong(everywhere, 0), Map.of(), true);
        }
        String option = prefix + "OffsetsByTimestamp";
        if (map.containsKey(option)) {
            return new OffsetSpec(option, isStart, null, OffsetsJson.parse(map.get(option)), true);
        }
        return null;
    }

    private static OffsetSpec byOffset(CaseInsensitiveStringMap map, String option, boolean isStart, long otherwise) {
        String text = map.getOrDefault(option, "").trim();
        return switch (text.toLowerCase(Locale.ROOT)) {
            case "" -> OffsetSpec.of(option, isStart, otherwise);
            case "earliest" -> OffsetSpec.of(option, isStart, OffsetSpec.EARLIEST);
            case "latest" -> OffsetSpec.of(option, isStart, OffsetSpec.LATEST);
            default -> new OffsetSpec(option, isStart, null, OffsetsJson.parse(text), false);
        };
    }
}
