package ottla.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Optional;

/** Segment of a partition: records with offsets from a base offset on, and their indexes. */
interface Segment {
    /** Kinds of index files, by the suffix of the file and the name of the part of a segment object. */
    enum Index {
        OFFSET("index", "offset"),
        TIME("timeindex", "timestamp"),
        TRANSACTION("txnindex", "transaction");

        final String fileSuffix;
        final String partName;

        Index(String fileSuffix, String partName) {
            this.fileSuffix = fileSuffix;
            this.partName = partName;
        }
    }

    long baseOffset();

    /** Return the last offset; {@link Long#MAX_VALUE} if only the records show it. */
    long lastOffset();

    /** Return the largest timestamp (ms) of its records; {@link Long#MAX_VALUE} if only the records show it. */
    long maxTimestamp();

    long sizeInBytes() throws IOException;

    /** Open the records; raise {@link java.nio.file.NoSuchFileException} if the segment was deleted. */
    SegmentInput open() throws IOException;

    /**
     * Return the bytes of an index, none if the segment has no such index; empty if its checksum does not match, which
     * is reported, and damage is to be skipped.
     */
    Optional<ByteBuffer> readIndex(Index index) throws IOException;

    /** Return the path of the file or object, for messages. */
    String path();

    /** Return the path of the file or object that has an index, for messages. */
    String indexPath(Index index);
}
