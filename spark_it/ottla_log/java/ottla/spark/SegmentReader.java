package ottla.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;

/**
 * Reader of the batches of a partition from an offset on, through its segments, with large sequential reads.
 *
 * <p>The bytes of an open segment stay readable when it is deleted or replaced. At its end the directory is listed
 * again, and the segment is opened that then contains the next offset: so a compaction that merged the segments behind
 * is noticed. Of a tiered topic, offsets that the directory has no more are looked for in the remote store again.
 */
final class SegmentReader implements Closeable {
    private static final int MAX_OPENS = 10;
    private static final long REOPEN_DELAY_MS = 20;

    /** Directory of the partition; null without one. */
    private final Path directory;

    private final LogSlice slice;
    private final LogOptions options;
    private final int windowBytes;

    private TreeMap<Long, SegmentObject> remoteObjects;
    private SegmentInput input;
    private Segment segment;
    private Long nextBaseOffset;
    byte[] buffer;
    private long bufferPosition;
    private int bufferBytes;
    private long fileSize;
    private long lastOffset;

    /** Index in the buffer of the next batch. */
    int at;

    final BatchHeader header = new BatchHeader();

    /** Offset below which everything was read. */
    long nextOffset;

    SegmentReader(LogSlice slice, LogOptions options, int windowBytes) {
        this.slice = slice;
        this.options = options;
        this.windowBytes = windowBytes;
        directory = slice.directory() == null ? null : Path.of(slice.directory());
        remoteObjects = slice.remoteObjects();
        buffer = new byte[windowBytes];
        nextOffset = slice.startOffset();
    }

    /** Result of {@link #decode}. */
    enum Next {
        /** The header of the next batch is decoded. */
        BATCH,
        /** The next batch, or its header, is not in the buffer. */
        NOT_BUFFERED,
        /** All segments were read. */
        END
    }

    /**
     * Decode the header of the next batch.
     *
     * @param wholeBatch true if all bytes of the batch must be in the buffer
     */
    Next decode(boolean wholeBatch) throws IOException {
        if (nextOffset >= slice.endOffset()) {
            return Next.END;
        }
        int left = bufferBytes - at;
        boolean isDecoded = left > 0 && header.decode(buffer, at, left);
        boolean isBuffered = isDecoded
                && (!wholeBatch || header.sizeInBytes <= left)
                && position() + header.sizeInBytes <= fileSize;
        return isBuffered ? Next.BATCH : Next.NOT_BUFFERED;
    }

    /** Read on so that the next batch can be decoded; return false at the end of the range. */
    boolean fill(boolean wholeBatch) throws IOException {
        while (nextOffset < slice.endOffset()) {
            if (input == null && !open()) {
                return false;
            }
            long position = position();
            long left = input.size() - position;
            if (left <= 0) {
                if (!leaveSegment()) {
                    return false;
                }
                continue;
            }
            read(position, windowBytes);
            boolean isDecoded = header.decode(buffer, 0, bufferBytes);
            if (isDecoded && wholeBatch && header.sizeInBytes > bufferBytes && header.sizeInBytes <= left) {
                read(position, header.sizeInBytes);
            }
            if (isDecoded && header.sizeInBytes <= left) {
                return true;
            }
            reportDamage(isDecoded ? "incomplete batch of " + header.sizeInBytes + " bytes" : "no batch header");
            skipDamage();
        }
        return false;
    }

    /** Return the bytes of the batch with the decoded header. */
    byte[] readWholeBatch() throws IOException {
        byte[] out = new byte[header.sizeInBytes];
        input.read(out, 0, out.length, position());
        return out;
    }

    /** Position in the segment of the next batch. */
    long position() {
        return bufferPosition + at;
    }

    /** Return the damage if the offsets of the batch cannot follow those of the batch before it, or null. */
    String checkOffsets() throws IOException {
        boolean isAscending = header.baseOffset > lastOffset;
        boolean isInSegment = header.lastOffset - segment.baseOffset() <= Integer.MAX_VALUE;
        // A segment that compaction merged with the next ones goes beyond their base offsets, and they are gone.
        boolean isBeyond = header.lastOffset > segment.lastOffset()
                || (segment instanceof LocalSegment
                        && nextBaseOffset != null
                        && header.lastOffset >= nextBaseOffset
                        && LocalSegment.list(directory).containsKey(nextBaseOffset));
        return isAscending && isInSegment && !isBeyond
                ? null
                : "offsets " + header.baseOffset + " to " + header.lastOffset + " behind offset " + lastOffset;
    }

    /** Move behind the batch with the decoded header. */
    void advance() {
        at += header.sizeInBytes;
        lastOffset = header.lastOffset;
        nextOffset = Math.max(nextOffset, header.lastOffset + 1);
        if (at > bufferBytes) {
            bufferPosition += at;
            at = 0;
            bufferBytes = 0;
        }
    }

    void reportDamage(String reason) {
        DataLoss.reportDamage(
                "Damaged batch: " + segment.path() + " at position " + position() + ", offset " + nextOffset + ": " + reason,
                options);
    }

    /** Move to the next batch with a valid checksum in the segment, or to its end. */
    void skipDamage() throws IOException {
        long found = DamageSearch.nextBatch(input, position() + 1, nextOffset);
        bufferPosition = found < 0 ? input.size() : found;
        bufferBytes = 0;
        at = 0;
    }

    private void read(long position, int bytes) throws IOException {
        if (buffer.length < bytes) {
            buffer = new byte[bytes];
        }
        bufferBytes = input.read(buffer, 0, bytes, position);
        fileSize = input.size();
        bufferPosition = position;
        at = 0;
    }

    /** Open the segment that contains the next offset; return false if the log ends before it. */
    private boolean open() throws IOException {
        for (int number = 0; ; number++) {
            TreeMap<Long, Segment> segments = segments();
            Map.Entry<Long, Segment> found = segments.floorEntry(nextOffset);
            boolean isMissing = found == null || found.getValue().lastOffset() < nextOffset;
            if (isMissing && number < MAX_OPENS) {
                if (number > 0 || !listRemoteObjects()) {
                    sleep();
                }
                continue;
            }
            if (isMissing) {
                Long following = segments.higherKey(nextOffset);
                long first = following == null ? slice.endOffset() : following;
                DataLoss.report("Offsets [" + nextOffset + ", " + first + ") of " + slice + " were deleted", options);
                nextOffset = Math.min(first, slice.endOffset());
                return nextOffset < slice.endOffset() && open();
            }
            try {
                open(found.getKey(), found.getValue(), segments.higherKey(found.getKey()));
                return true;
            } catch (NoSuchFileException deleted) {
                close();
                if (found.getValue() instanceof RemoteSegment) {
                    remoteObjects.remove(found.getKey());
                } else if (number == MAX_OPENS) {
                    throw deleted;
                }
                sleep();
            }
        }
    }

    /** Return the segments by the first offset that is to be read from each. */
    private TreeMap<Long, Segment> segments() throws IOException {
        TreeMap<Long, Segment> out = directory == null ? new TreeMap<>() : LocalSegment.list(directory);
        long firstLocal = out.isEmpty() ? Long.MAX_VALUE : out.firstKey();
        remoteObjects
                .headMap(firstLocal)
                .forEach((first, object) -> out.put(first, new RemoteSegment(object, options)));
        return out;
    }

    /** Look for the rest of the range in the remote store, to which local segments may have moved; false without one. */
    private boolean listRemoteObjects() throws IOException {
        if (directory == null || options.remoteStore == null) {
            return false;
        }
        RemoteCatalog catalog = new RemoteCatalog(options);
        TopicPartition partition = new TopicPartition(slice.topic(), slice.partition());
        catalog.list(partition.topic(), slice.topicId(), partition.partition());
        LeaderEpochs epochs = new LeaderEpochs(CheckpointFiles.readLeaderEpochs(directory));
        remoteObjects = catalog.objectsOf(
                partition, slice.topicId(), epochs, nextOffset, slice.endOffset(), Long.MAX_VALUE);
        return true;
    }

    private void open(long first, Segment opened, Long following) throws IOException {
        input = opened.open();
        segment = opened;
        nextBaseOffset = following;
        boolean isHinted = first == slice.segmentOffset() && nextOffset == slice.startOffset();
        if (isHinted && beginsBefore(slice.position())) {
            bufferPosition = slice.position();
        } else {
            int position = nextOffset <= opened.baseOffset()
                    ? 0
                    : new SegmentIndex(opened).floorPosition(nextOffset, options.skipDamagedBatches);
            bufferPosition = beginsBefore(position) ? position : 0;
        }
        bufferBytes = 0;
        at = 0;
        lastOffset = -1;
    }

    /** Return true if a batch that begins at or before the next offset is at the position. */
    private boolean beginsBefore(int position) throws IOException {
        try (HeaderCursor cursor = new HeaderCursor(segment, position)) {
            return cursor.next() && (cursor.header.baseOffset <= nextOffset || cursor.header.isLegacy());
        }
    }

    /** Close the segment and move to the next one; return false if there is none. */
    private boolean leaveSegment() throws IOException {
        if (segment instanceof RemoteSegment) {
            nextOffset = Math.max(nextOffset, segment.lastOffset() + 1);
            close();
            return true;
        }
        if (nextBaseOffset == null) {
            nextBaseOffset = LocalSegment.list(directory).higherKey(segment.baseOffset());
        }
        if (nextBaseOffset == null) {
            DataLoss.report("The log ends at offset " + nextOffset + ", within " + slice, options);
            return false;
        }
        nextOffset = Math.max(nextOffset, nextBaseOffset);
        close();
        return true;
    }

    private static void sleep() throws IOException {
        try {
            Thread.sleep(REOPEN_DELAY_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        }
    }

    @Override
    public void close() throws IOException {
        if (input != null) {
            input.close();
            input = null;
        }
    }
}
