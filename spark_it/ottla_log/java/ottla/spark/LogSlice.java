package ottla.spark;

import java.io.Serializable;

/**
 * Range of offsets of a partition log.
 *
 * <p>{@code segmentOffset} and {@code position} are a hint: the segment and the position of the batch with the offset
 * {@code startOffset} when the read was planned. A reader checks it, since the segment may be deleted or compacted.
 */
record LogSlice(
        String topic,
        int partition,
        String directory,
        long startOffset,
        long endOffset,
        long segmentOffset,
        int position,
        AbortedTransactions aborted)
        implements Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public String toString() {
        return topic + "-" + partition + " [" + startOffset + ", " + endOffset + ") in " + directory;
    }
}
