package ottla.spark;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * Leader epochs of a log, by epoch with the first offset of each, and the remote segments that belong to them.
 *
 * <p>The copies of a former leader may hold records that the log does not have.
 *
 * <p>Source: {@code RemoteLogManager.isRemoteSegmentWithinLeaderEpochs} (Apache Kafka 4.3.1).
 */
final class LeaderEpochs {
    private final TreeMap<Integer, Long> epochs;

    LeaderEpochs(Map<Integer, Long> entries) {
        epochs = withRecords(entries);
    }

    /** Return the epochs without those that ended where they began. */
    private static TreeMap<Integer, Long> withRecords(Map<Integer, Long> entries) {
        TreeMap<Integer, Long> out = new TreeMap<>();
        Map.Entry<Integer, Long> previous = null;
        for (Map.Entry<Integer, Long> entry : new TreeMap<>(entries).entrySet()) {
            if (previous != null && !previous.getValue().equals(entry.getValue())) {
                out.put(previous.getKey(), previous.getValue());
            }
            previous = entry;
        }
        if (previous != null) {
            out.put(previous.getKey(), previous.getValue());
        }
        return out;
    }

    /** Return true if all records of a segment are records of the log, which ends at an offset. */
    boolean contain(SegmentObject object, long logEndOffset) {
        TreeMap<Integer, Long> all = withRecords(object.leaderEpochs());
        if (epochs.isEmpty() || object.endOffset() >= logEndOffset || !epochs.containsKey(all.lastKey())) {
            return false;
        }
        int earliest = epochs.firstKey();
        var segment = all.tailMap(earliest, true);
        Map.Entry<Integer, Long> segmentFirst = segment.firstEntry();
        var log = epochs.tailMap(segmentFirst.getKey(), true);
        if (log.size() < segment.size() || !log.firstKey().equals(segmentFirst.getKey())) {
            return false;
        }
        if (segmentFirst.getKey() > earliest && segmentFirst.getValue() < log.firstEntry().getValue()) {
            return false;
        }
        Iterator<Map.Entry<Integer, Long>> entries = log.entrySet().iterator();
        entries.next();
        for (Map.Entry<Integer, Long> entry : segment.tailMap(segmentFirst.getKey(), false).entrySet()) {
            if (!entries.next().equals(entry)) {
                return false;
            }
        }
        return !entries.hasNext() || object.endOffset() < entries.next().getValue();
    }
}
