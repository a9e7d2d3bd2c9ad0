package ottla.spark;

import java.io.Closeable;
import java.io.IOException;

/** Cursor over the batch headers of a segment; the records between them are not read. */
final class HeaderCursor implements Closeable {
    private static final int WINDOW_BYTES = 4096;

    final BatchHeader header = new BatchHeader();
    private final SegmentInput input;
    private final byte[] window = new byte[WINDOW_BYTES];
    private long windowPosition;
    private int windowBytes;

    /** Position of the current batch; after {@link #next} returned false, the position where headers end. */
    long position;

    private long nextPosition;
    private final long fileSize;

    HeaderCursor(Segment segment, long position) throws IOException {
        input = segment.open();
        fileSize = input.size();
        seek(position);
    }

    /** Set the position of the batch that {@link #next} reads. */
    void seek(long target) {
        nextPosition = target;
    }

    /** Read the next header; return false at the end of the file, at an incomplete batch, and where no header is. */
    boolean next() throws IOException {
        position = nextPosition;
        long left = fileSize - position;
        if (left <= 0) {
            return false;
        }
        int needed = (int) Math.min(BatchHeader.MAX_BYTES, left);
        if (position < windowPosition || position + needed > windowPosition + windowBytes) {
            windowPosition = position;
            windowBytes = read(window, position);
        }
        int at = (int) (position - windowPosition);
        if (!header.decode(window, at, windowBytes - at) || header.sizeInBytes > left) {
            return false;
        }
        nextPosition = position + header.sizeInBytes;
        return true;
    }

    boolean isAtEndOfFile() {
        return position >= fileSize;
    }

    /** Return the position after the current batch. */
    long endPosition() {
        return nextPosition;
    }

    /** Return the bytes of the current batch. */
    byte[] readBatch() throws IOException {
        byte[] out = new byte[header.sizeInBytes];
        if (read(out, position) < out.length) {
            throw new IOException("Incomplete batch at position " + position);
        }
        return out;
    }

    /** Move to the next batch with a valid checksum behind damaged bytes, and return true if there is one. */
    boolean skipDamage(long minOffset) throws IOException {
        long found = DamageSearch.nextBatch(input, position + 1, minOffset);
        position = found < 0 ? fileSize : found;
        seek(position);
        return found >= 0;
    }

    private int read(byte[] target, long from) throws IOException {
        return input.read(target, 0, target.length, from);
    }

    @Override
    public void close() throws IOException {
        input.close();
    }
}
