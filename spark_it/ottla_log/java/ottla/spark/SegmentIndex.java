package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Sparse index of a segment: from its {@code .index} and {@code .timeindex} files, and from the batch headers behind
 * their last entry. The files of the active segment may be missing or preallocated; the headers then are the index.
 *
 * <p>Source: {@code OffsetIndex}, {@code TimeIndex} (Apache Kafka 4.3.1).
 */
final class SegmentIndex {
    private static final int OFFSET_ENTRY_BYTES = 8;
    private static final int TIME_ENTRY_BYTES = 12;
    private static final int BYTES_BETWEEN_ENTRIES = 1 << 14;
    private static final int MAX_BYTES_WITHOUT_ENTRY = 1 << 20;

    final Segment segment;
    private long[] offsets = new long[64];
    private int[] positions = new int[64];
    private long[] maxTimestampsBefore = new long[64];
    private int entries;
    private int entriesOfFile;
    private long[] timeEntries = new long[0];

    /** Position and offset behind the last batch that was scanned. */
    private long scannedPosition;

    private long nextOffset;
    private long maxTimestamp = -1;
    private boolean isScanned;
    private long fileSize;
    private boolean endsWithDamage;

    SegmentIndex(Segment segment) throws IOException {
        this.segment = segment;
        fileSize = segment.sizeInBytes();
        nextOffset = segment.baseOffset();
        readOffsetIndex();
        if (entries > 0) {
            readTimeIndex();
        }
        entriesOfFile = entries;
    }

    private void readOffsetIndex() throws IOException {
        ByteBuffer raw = segment.readIndex(Segment.Index.OFFSET).orElse(ByteBuffer.allocate(0));
        if (raw.remaining() % OFFSET_ENTRY_BYTES != 0) {
            return;
        }
        while (raw.hasRemaining()) {
            int relative = raw.getInt();
            int position = raw.getInt();
            boolean isPadding = relative == 0 && position == 0;
            if (isPadding && entries > 0) {
                return;
            }
            boolean isAscending = entries == 0 || positions[entries - 1] < position;
            if (relative < 0 || position < 0 || position >= fileSize || !isAscending) {
                entries = 0;
                return;
            }
            if (!isPadding) {
                add(segment.baseOffset() + relative, position, Long.MAX_VALUE);
            }
        }
    }

    private void readTimeIndex() throws IOException {
        ByteBuffer raw = segment.readIndex(Segment.Index.TIME).orElse(ByteBuffer.allocate(0));
        int count = raw.remaining() / TIME_ENTRY_BYTES;
        timeEntries = new long[2 * count];
        for (int number = 0; number < count; number++) {
            long timestamp = raw.getLong();
            int relative = raw.getInt();
            if (number > 0 && timestamp <= timeEntries[2 * number - 2]) {
                count = number;
                break;
            }
            timeEntries[2 * number] = timestamp;
            timeEntries[2 * number + 1] = segment.baseOffset() + relative;
        }
        timeEntries = Arrays.copyOf(timeEntries, 2 * count);
        if (count == 1 && timeEntries[0] == 0) {
            timeEntries = new long[0];
        }
    }

    private void add(long offset, int position, long maxTimestampBefore) {
        if (entries == offsets.length) {
            offsets = Arrays.copyOf(offsets, 2 * entries);
            positions = Arrays.copyOf(positions, 2 * entries);
            maxTimestampsBefore = Arrays.copyOf(maxTimestampsBefore, 2 * entries);
        }
        offsets[entries] = offset;
        positions[entries] = position;
        maxTimestampsBefore[entries++] = maxTimestampBefore;
    }

    /** Read the headers behind the last entry and behind those read before. */
    void scan(boolean skipDamagedBatches) throws IOException {
        fileSize = segment.sizeInBytes();
        if (!isScanned) {
            isScanned = true;
            scannedPosition = entries == 0 ? 0 : positions[entries - 1];
            maxTimestamp = timeEntries.length == 0 ? -1 : timeEntries[timeEntries.length - 2];
        }
        try (HeaderCursor cursor = new HeaderCursor(segment, scannedPosition)) {
            do {
                while (cursor.next()) {
                    addScanned(cursor);
                }
                endsWithDamage = !cursor.isAtEndOfFile();
            } while (endsWithDamage && skipDamagedBatches && cursor.skipDamage(nextOffset));
        }
    }

    private void addScanned(HeaderCursor cursor) {
        BatchHeader header = cursor.header;
        boolean isDue = entries == 0 || cursor.position - positions[entries - 1] >= BYTES_BETWEEN_ENTRIES;
        if (isDue && !header.isLegacy()) {
            add(header.baseOffset, (int) cursor.position, maxTimestamp);
        }
        nextOffset = Math.max(nextOffset, header.lastOffset + 1);
        maxTimestamp = Math.max(maxTimestamp, header.maxTimestamp);
        scannedPosition = cursor.endPosition();
    }

    private void scanIfSparse(boolean skipDamagedBatches) throws IOException {
        long indexed = entries == 0 ? 0 : positions[entries - 1];
        if (!isScanned && fileSize - indexed > MAX_BYTES_WITHOUT_ENTRY) {
            scan(skipDamagedBatches);
        }
    }

    long size() {
        return fileSize;
    }

    /** Return the offset behind the last batch; {@link #scan} must precede. */
    long nextOffset() {
        return nextOffset;
    }

    /** Return the position behind the last batch if bytes that are no batch follow it, else -1. */
    long damagedPosition() {
        return endsWithDamage ? scannedPosition : -1;
    }

    /** Return the position of a batch that begins at or before an offset. */
    int floorPosition(long offset, boolean skipDamagedBatches) throws IOException {
        scanIfSparse(skipDamagedBatches);
        int at = Arrays.binarySearch(offsets, 0, entries, offset);
        at = at >= 0 ? at : -at - 2;
        return at < 0 ? 0 : positions[at];
    }

    /** Return the position of the first indexed batch at or after a position; -1 without such an entry. */
    int ceilingPosition(long position) throws IOException {
        scanIfSparse(true);
        int at = Arrays.binarySearch(positions, 0, entries, (int) Math.min(position, Integer.MAX_VALUE));
        at = at >= 0 ? at : -at - 1;
        return at < entries ? positions[at] : -1;
    }

    /**
     * Return the position from which to search for a timestamp: all batches before it are older. Return -1 if all
     * batches of the segment are older.
     */
    int positionOfTime(long timestamp, boolean isActive, boolean skipDamagedBatches) throws IOException {
        if (timeEntries.length == 0) {
            entries = isScanned && entriesOfFile == 0 ? entries : 0;
            entriesOfFile = 0;
            isScanned = isScanned && entries > 0;
        }
        if (isActive || timeEntries.length == 0) {
            scan(skipDamagedBatches);
        }
        long newest = timeEntries.length == 0 ? -1 : timeEntries[timeEntries.length - 2];
        if (Math.max(newest, maxTimestamp) < timestamp) {
            return -1;
        }
        int older = 0;
        while (older < timeEntries.length && timeEntries[older] < timestamp) {
            older += 2;
        }
        int position = older == 0 ? 0 : floorPosition(timeEntries[older - 1], skipDamagedBatches);
        for (int at = entriesOfFile; at < entries && maxTimestampsBefore[at] < timestamp; at++) {
            position = Math.max(position, positions[at]);
        }
        return position;
    }
}
