package ottla.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Aborted transactions of a partition: producer id, first offset, and offset of the abort marker. */
final class AbortedTransactions implements Serializable {
    private static final long serialVersionUID = 1;
    static final AbortedTransactions NONE = new AbortedTransactions();

    private final Map<Long, List<long[]>> rangesByProducer = new HashMap<>();

    void add(long producerId, long firstOffset, long lastOffset) {
        List<long[]> ranges = rangesByProducer.computeIfAbsent(producerId, id -> new ArrayList<>());
        for (long[] range : ranges) {
            if (range[1] == lastOffset) {
                return;
            }
        }
        ranges.add(new long[] {firstOffset, lastOffset});
    }

    void addAll(AbortedTransactions other) {
        other.rangesByProducer.forEach((producerId, ranges) -> ranges.forEach(range -> add(producerId, range[0], range[1])));
    }

    /** Return the transactions that have an offset in the range. */
    AbortedTransactions within(long startOffset, long endOffset) {
        AbortedTransactions out = new AbortedTransactions();
        rangesByProducer.forEach((producerId, ranges) -> {
            for (long[] range : ranges) {
                if (range[1] >= startOffset && range[0] < endOffset) {
                    out.add(producerId, range[0], range[1]);
                }
            }
        });
        return out;
    }

    /** Return true if the transactional batch of the producer at the offset belongs to an aborted transaction. */
    boolean contains(long producerId, long offset) {
        List<long[]> ranges = rangesByProducer.get(producerId);
        if (ranges != null) {
            for (long[] range : ranges) {
                if (range[0] <= offset && offset <= range[1]) {
                    return true;
                }
            }
        }
        return false;
    }
}
