package ottla.spark;

import java.io.Serializable;
import java.util.TreeMap;

/**
 * Range of offsets of a partition log: in a log directory, in the remote store, or partly in both.
 *
 * <p>{@code segmentOffset} and {@code position} are a hint: the segment and the position of the batch with the offset
 * {@code startOffset} when the read was planned. A reader checks it, since the segment may be deleted or compacted.
 *
 * @param directory the directory of the partition; null without one
 * @param remoteObjects the segments of the remote store, by the first offset that is to be read from each
 */
record LogSlice(
        String topic,
        int partition,
        String topicId,
        String directory,
        TreeMap<Long, SegmentObject> remoteObjects,
        long startOffset,
        long endOffset,
        long segmentOffset,
        int position,
        AbortedTransactions aborted)
        implements Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public String toString() {
        return topic + "-" + partition + " [" + startOffset + ", " + endOffset + ")" + (directory == null ? " in the remote store" : " in " + directory);
    }
}
