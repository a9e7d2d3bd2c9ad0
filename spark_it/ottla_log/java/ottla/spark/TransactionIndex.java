package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Index of the aborted transactions that end in a segment: its {@code .txnindex} file, or the part of its object.
 *
 * <p>Source: {@code TransactionIndex}, {@code AbortedTxn} (Apache Kafka 4.3.1).
 */
final class TransactionIndex {
    private static final int ENTRY_BYTES = 34;
    private static final int VERSION = 0;

    private TransactionIndex() {}

    /** Aborted transaction: its first offset, and the offset of its marker. */
    record Entry(long producerId, long firstOffset, long lastOffset) {}

    /**
     * Return the entries of a segment's index, none without a file; empty if the index is damaged, which is reported,
     * and damage is to be skipped.
     */
    static Optional<List<Entry>> read(PartitionLog log, Segment segment, LogOptions options) throws IOException {
        Optional<ByteBuffer> raw = segment.readIndex(Segment.Index.TRANSACTION);
        if (raw.isEmpty()) {
            return Optional.empty();
        }
        List<Entry> out = new ArrayList<>();
        String damage = decode(raw.get(), segment.baseOffset(), out);
        if (damage == null && !out.isEmpty()) {
            long last = out.get(out.size() - 1).lastOffset();
            damage = log.mayContain(segment, last) ? null : "offset " + last + " is beyond the segment";
        }
        if (damage != null) {
            String path = segment.indexPath(Segment.Index.TRANSACTION);
            DataLoss.reportDamage("Damaged transaction index: " + path + ": " + damage, options);
            return Optional.empty();
        }
        return Optional.of(out);
    }

    /** Add the entries in the bytes of an index to a list; return the damage that was found, or null. */
    private static String decode(ByteBuffer raw, long baseOffset, List<Entry> out) {
        if (raw.remaining() % ENTRY_BYTES != 0) {
            return raw.remaining() + " bytes, not a multiple of " + ENTRY_BYTES;
        }
        long before = baseOffset - 1;
        while (raw.hasRemaining()) {
            int version = raw.getShort();
            Entry entry = new Entry(raw.getLong(), raw.getLong(), raw.getLong());
            raw.getLong(); // last stable offset
            if (version != VERSION) {
                return "version " + version + " of entry " + out.size() + " (" + VERSION + " expected)";
            }
            boolean isRange = entry.firstOffset() >= 0 && entry.firstOffset() < entry.lastOffset();
            if (entry.producerId() < 0 || !isRange || entry.lastOffset() <= before) {
                return "entry " + out.size() + " has producer id " + entry.producerId() + " and offsets "
                        + entry.firstOffset() + " to " + entry.lastOffset() + " behind offset " + before;
            }
            before = entry.lastOffset();
            out.add(entry);
        }
        return null;
    }
}
