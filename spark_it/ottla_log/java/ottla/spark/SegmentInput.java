package ottla.spark;

import java.io.Closeable;
import java.io.IOException;

/** Records of a segment, read by position. */
interface SegmentInput extends Closeable {
    /** Return the length of the records in bytes; that of the active segment grows. */
    long size() throws IOException;

    /**
     * Read bytes from a position on into an array; return their number.
     *
     * @return {@code length}, or less at the end of the records
     */
    int read(byte[] target, int at, int length, long position) throws IOException;
}
