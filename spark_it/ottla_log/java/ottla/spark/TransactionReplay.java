package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;

/**
 * Transactions of a partition up to an offset: the open ones from the newest producer snapshot and the batch headers
 * behind it, and the aborted ones from the transaction indexes and those headers.
 *
 * <p>Source: {@code ProducerStateManager}, {@code TransactionIndex} (Apache Kafka 4.3.1).
 */
final class TransactionReplay {
    private static final Pattern SNAPSHOT = Pattern.compile("([0-9]{20})\\.snapshot");
    private static final int SNAPSHOT_HEADER_BYTES = 10;
    private static final int SNAPSHOT_ENTRY_BYTES = 46;

    private final PartitionLog log;
    private final LogOptions options;
    private final Map<Long, Long> openTransactions = new HashMap<>();
    private final AbortedTransactions aborted = new AbortedTransactions();

    TransactionReplay(PartitionLog log, LogOptions options) {
        this.log = log;
        this.options = options;
    }

    /** Return the first offset of an open transaction below the end of the read, or that end. */
    long lastStableOffset(long endOffset) throws IOException {
        if (log.directory == null) {
            return endOffset; // segments are copied up to the last stable offset
        }
        long from = loadNewestSnapshot(endOffset);
        for (Segment segment : log.segmentsFrom(from).values()) {
            if (segment instanceof LocalSegment && segment.baseOffset() < endOffset) {
                replay(segment, from, endOffset);
            }
        }
        return Math.min(endOffset, openTransactions.values().stream().min(Long::compare).orElse(endOffset));
    }

    /**
     * Return the aborted transactions of a range of offsets; {@link #lastStableOffset} must precede.
     *
     * <p>An index decides where a transaction begins: without a damaged marker before it, the replay finds it too early.
     */
    AbortedTransactions abortedTransactions(long startOffset, long endOffset) throws IOException {
        AbortedTransactions out = new AbortedTransactions();
        long lastDamaged = -1;
        for (Map.Entry<Long, Segment> entry : log.segmentsFrom(startOffset).entrySet()) {
            Optional<List<TransactionIndex.Entry>> index = TransactionIndex.read(log, entry.getValue(), options);
            if (index.isEmpty()) {
                lastDamaged = entry.getKey();
            } else {
                index.get().forEach(each -> out.add(each.producerId(), each.firstOffset(), each.lastOffset()));
            }
        }
        out.addAll(aborted);
        if (lastDamaged >= 0) {
            out.addAll(replayMarkers(startOffset, lastDamaged));
        }
        return out.within(startOffset, endOffset);
    }

    /**
     * Return the aborted transactions by the markers from an offset up to the end of a segment. Of a transaction that
     * began before the offset, the part behind it is found.
     */
    private AbortedTransactions replayMarkers(long startOffset, long lastSegment) throws IOException {
        TransactionReplay markers = new TransactionReplay(log, options);
        for (Map.Entry<Long, Segment> entry : log.segmentsFrom(startOffset).headMap(lastSegment, true).entrySet()) {
            Long next = log.segments.higherKey(entry.getKey());
            long from = Math.max(startOffset, entry.getKey());
            markers.replay(entry.getValue(), from, next == null ? Long.MAX_VALUE : next);
        }
        return markers.aborted;
    }

    private long loadNewestSnapshot(long endOffset) throws IOException {
        TreeMap<Long, Path> snapshots = new TreeMap<>();
        try (var files = Files.newDirectoryStream(log.directory)) {
            for (Path file : files) {
                Matcher name = SNAPSHOT.matcher(file.getFileName().toString());
                if (name.matches() && Long.parseLong(name.group(1)) <= endOffset) {
                    snapshots.put(Long.parseLong(name.group(1)), file);
                }
            }
        }
        for (Map.Entry<Long, Path> snapshot : snapshots.descendingMap().entrySet()) {
            if (load(snapshot.getValue())) {
                return snapshot.getKey();
            }
        }
        return 0;
    }

    /** Load the open transactions of a snapshot; return false if its checksum does not match. */
    private boolean load(Path file) throws IOException {
        ByteBuffer raw = LocalSegment.readIfPresent(file);
        if (raw.remaining() < SNAPSHOT_HEADER_BYTES || raw.getShort() != 1) {
            return false;
        }
        java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
        int expected = raw.getInt();
        crc.update(raw.duplicate());
        int count = raw.getInt();
        if ((int) crc.getValue() != expected || raw.remaining() < (long) count * SNAPSHOT_ENTRY_BYTES) {
            return false;
        }
        for (int number = 0; number < count; number++) {
            int at = raw.position() + number * SNAPSHOT_ENTRY_BYTES;
            long firstOffset = raw.getLong(at + SNAPSHOT_ENTRY_BYTES - Long.BYTES);
            if (firstOffset >= 0) {
                openTransactions.put(raw.getLong(at), firstOffset);
            }
        }
        return true;
    }

    private void replay(Segment segment, long from, long endOffset) throws IOException {
        try (HeaderCursor cursor = new HeaderCursor(segment, log.floorPosition(segment, from))) {
            long nextOffset = segment.baseOffset();
            do {
                while (cursor.next()) {
                    BatchHeader header = cursor.header;
                    if (header.baseOffset >= endOffset) {
                        return;
                    }
                    nextOffset = header.lastOffset + 1;
                    if (header.lastOffset >= from && header.isTransactional()) {
                        if (header.isControl()) {
                            endTransaction(segment, cursor);
                        } else {
                            openTransactions.putIfAbsent(header.producerId, header.baseOffset);
                        }
                    }
                }
            } while (!cursor.isAtEndOfFile() && nextOffset < endOffset && skipDamage(segment, cursor, nextOffset));
        }
    }

    private boolean skipDamage(Segment segment, HeaderCursor cursor, long nextOffset) throws IOException {
        reportDamage(segment, cursor, nextOffset, "no whole batch");
        return cursor.skipDamage(nextOffset);
    }

    private void reportDamage(Segment segment, HeaderCursor cursor, long offset, String reason) {
        DataLoss.reportDamage(
                "Damaged batch: " + segment.path() + " at position " + cursor.position + ", offset " + offset + ": "
                        + reason,
                options);
    }

    private void endTransaction(Segment segment, HeaderCursor cursor) throws IOException {
        byte[] marker = cursor.readBatch();
        if (!BatchHeader.hasValidChecksum(marker, 0, marker.length)) {
            reportDamage(segment, cursor, cursor.header.baseOffset, "the checksum does not match");
            return;
        }
        for (MutableRecordBatch batch : BatchRecords.of(marker).batches()) {
            for (Record record : batch) {
                ControlRecordType type = ControlRecordType.parse(record.key());
                if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT) {
                    Long firstOffset = openTransactions.remove(batch.producerId());
                    if (firstOffset != null && type == ControlRecordType.ABORT) {
                        aborted.add(batch.producerId(), firstOffset, record.offset());
                    }
                }
            }
        }
    }
}
