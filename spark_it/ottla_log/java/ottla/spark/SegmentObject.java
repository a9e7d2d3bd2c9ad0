package ottla.spark;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;

/**
 * Description of a segment in the remote store of tiered storage, as in the descriptor of its object.
 *
 * @param name the name of the object below the URL of the store
 * @param objectBytes the length of the object
 * @param leaderEpochs the first offset in the segment of each leader epoch
 * @param checksumChunkBytes the bytes of records that have a checksum of their own
 * @param parts the parts of the object by name
 */
record SegmentObject(
        String name,
        long objectBytes,
        long startOffset,
        long endOffset,
        long maxTimestampMs,
        long eventTimestampMs,
        TreeMap<Integer, Long> leaderEpochs,
        int checksumChunkBytes,
        TreeMap<String, Part> parts)
        implements Serializable {
    private static final long serialVersionUID = 1;
    static final String RECORDS = "records";
    static final String CHECKSUMS = "record_checksums";
    static final String LEADER_EPOCH = "leader_epoch";
    private static final Part NO_PART = new Part(0, 0, 0);

    /** Range of bytes in an object, and their CRC-32C. */
    record Part(long position, int length, int crc32c) implements Serializable {
        private static final long serialVersionUID = 1;
    }

    /** Return a part; an empty one if the object has none of the name. */
    Part part(String partName) {
        return parts.getOrDefault(partName, NO_PART);
    }

    int recordBytes() {
        return part(RECORDS).length();
    }

    /** Return the objects that contain the offsets of a range, by the first offset that is read from each. */
    static TreeMap<Long, SegmentObject> within(TreeMap<Long, SegmentObject> objects, long startOffset, long endOffset) {
        Map.Entry<Long, SegmentObject> first = objects.floorEntry(startOffset);
        return new TreeMap<>(objects.subMap(first == null ? startOffset : first.getKey(), endOffset));
    }
}
