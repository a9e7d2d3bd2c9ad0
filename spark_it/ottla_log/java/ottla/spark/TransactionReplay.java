package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
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
    private static final int INDEX_ENTRY_BYTES = 34;

    private final PartitionLog log;
    private final Map<Long, Long> openTransactions = new HashMap<>();
    private final AbortedTransactions aborted = new AbortedTransactions();

    TransactionReplay(PartitionLog log) {
        this.log = log;
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

    /** Return the aborted transactions of a range of offsets; {@link #lastStableOffset} must precede. */
    AbortedTransactions abortedTransactions(long startOffset, long endOffset) throws IOException {
        for (Segment segment : log.segmentsFrom(startOffset).values()) {
            ByteBuffer raw = segment.readIndex(Segment.Index.TRANSACTION);
            while (raw.remaining() >= INDEX_ENTRY_BYTES) {
                raw.getShort();
                long producerId = raw.getLong();
                long firstOffset = raw.getLong();
                aborted.add(producerId, firstOffset, raw.getLong());
                raw.getLong();
            }
        }
        return aborted.within(startOffset, endOffset);
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
            while (cursor.next()) {
                BatchHeader header = cursor.header;
                if (header.baseOffset >= endOffset) {
                    return;
                }
                if (header.lastOffset >= from && header.isTransactional()) {
                    if (header.isControl()) {
                        endTransaction(cursor);
                    } else {
                        openTransactions.putIfAbsent(header.producerId, header.baseOffset);
                    }
                }
            }
        }
    }

    private void endTransaction(HeaderCursor cursor) throws IOException {
        for (MutableRecordBatch batch : BatchRecords.of(cursor.readBatch()).batches()) {
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
