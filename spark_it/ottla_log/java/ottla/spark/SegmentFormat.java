package ottla.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.TreeMap;
import java.util.zip.CRC32C;
import ottla.spark.SegmentObject.Part;

/**
 * Format of segment objects: records, indexes, a descriptor in JSON and a footer, each with a checksum.
 *
 * <p>Source: {@code docs/reference/segment-objects.md}.
 */
final class SegmentFormat {
    private static final int FOOTER_BYTES = 32;
    private static final int FOOTER_CHECKED_BYTES = 20;
    private static final int TAIL_BYTES = 1 << 16;
    private static final int MAX_DESCRIPTOR_BYTES = 4 << 20;
    private static final int MAX_INDEX_BYTES = 256 << 20;
    private static final int MIN_CHUNK_BYTES = 4096;
    private static final int MAX_CHUNK_BYTES = 64 << 20;
    private static final byte[] MAGIC = "OttlaSeg".getBytes(StandardCharsets.US_ASCII);
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private SegmentFormat() {}

    /** Error: an object is truncated or damaged, or no segment object. */
    static final class CorruptObject extends IOException {
        private static final long serialVersionUID = 1;

        CorruptObject(String message) {
            super(message);
        }
    }

    /** Read the end of an object and return its description; a {@link CorruptObject} states what is wrong. */
    static SegmentObject describe(RemoteStore store, String name, long objectBytes) throws IOException {
        if (objectBytes < FOOTER_BYTES) {
            throw new CorruptObject("no segment object: " + objectBytes + " bytes");
        }
        int tailBytes = (int) Math.min(TAIL_BYTES, objectBytes);
        byte[] tail = store.readRange(name, objectBytes, objectBytes - tailBytes, tailBytes);
        ByteBuffer footer = ByteBuffer.wrap(tail, tailBytes - FOOTER_BYTES, FOOTER_BYTES).slice();
        long position = footer.getLong();
        int length = footer.getInt();
        int descriptorCrc = footer.getInt();
        int version = footer.getShort();
        footer.getShort();
        int ownCrc = footer.getInt();
        if (!Arrays.equals(tail, tailBytes - MAGIC.length, tailBytes, MAGIC, 0, MAGIC.length)) {
            throw new CorruptObject("no segment object, or a truncated one");
        }
        if (ownCrc != crc32c(tail, tailBytes - FOOTER_BYTES, FOOTER_CHECKED_BYTES)) {
            throw new CorruptObject("the footer is damaged: wrong checksum");
        }
        if (version != 1) {
            throw new CorruptObject("unknown format: version " + version + " (1 expected)");
        }
        boolean isInObject = position >= 0 && length > 0 && length <= MAX_DESCRIPTOR_BYTES;
        if (!isInObject || position + length + FOOTER_BYTES != objectBytes) {
            throw new CorruptObject("the footer does not fit the object of " + objectBytes + " bytes");
        }
        int inTail = (int) Math.max(-1, position - (objectBytes - tailBytes));
        byte[] raw = inTail >= 0
                ? Arrays.copyOfRange(tail, inTail, inTail + length)
                : store.readRange(name, objectBytes, position, length);
        if (crc32c(raw, 0, length) != descriptorCrc) {
            throw new CorruptObject("the descriptor is damaged: wrong checksum");
        }
        return decode(name, objectBytes, position, raw);
    }

    private static SegmentObject decode(String name, long objectBytes, long end, byte[] raw) throws IOException {
        try {
            JsonNode stored = MAPPER.readTree(raw);
            String own = String.format(
                    "%s/%s/%d/%020d-%s.segment",
                    required(stored, "topic").asText(),
                    required(stored, "topicId").asText(),
                    required(stored, "partition").asInt(),
                    required(stored, "startOffset").asLong(),
                    required(stored, "segmentId").asText());
            if (!own.equals(name)) {
                throw new CorruptObject("object of another segment: " + own);
            }
            TreeMap<Integer, Long> epochs = new TreeMap<>();
            required(stored, "leaderEpochs").forEach(entry -> epochs.put(entry.get(0).asInt(), entry.get(1).asLong()));
            SegmentObject object = new SegmentObject(
                    name,
                    objectBytes,
                    required(stored, "startOffset").asLong(),
                    required(stored, "endOffset").asLong(),
                    required(stored, "maxTimestampMs").asLong(),
                    required(stored, "eventTimestampMs").asLong(),
                    epochs,
                    required(stored, "checksumChunkBytes").asInt(),
                    parts(required(stored, "parts"), end));
            check(object);
            return object;
        } catch (CorruptObject error) {
            throw error;
        } catch (IOException | RuntimeException error) {
            throw new CorruptObject("invalid descriptor: " + error.getMessage());
        }
    }

    private static JsonNode required(JsonNode stored, String field) throws CorruptObject {
        JsonNode value = stored.get(field);
        if (value == null) {
            throw new CorruptObject("invalid descriptor: no field " + field);
        }
        return value;
    }

    private static TreeMap<String, Part> parts(JsonNode stored, long end) throws CorruptObject {
        TreeMap<String, Part> out = new TreeMap<>();
        long position = 0;
        for (JsonNode each : stored) {
            String name = required(each, "name").asText();
            long length = required(each, "length").asLong();
            long limit = name.equals(SegmentObject.RECORDS) ? Integer.MAX_VALUE : MAX_INDEX_BYTES;
            if (required(each, "position").asLong() != position || length < 0 || length > limit) {
                throw new CorruptObject("invalid descriptor: part " + name + " of " + length + " bytes");
            }
            int crc = Integer.parseUnsignedInt(required(each, "crc32c").asText(), 16);
            out.put(name, new Part(position, (int) length, crc));
            position += length;
        }
        if (position != end) {
            throw new CorruptObject("invalid descriptor: parts end at " + position + " (" + end + " expected)");
        }
        return out;
    }

    private static void check(SegmentObject object) throws CorruptObject {
        int chunkBytes = object.checksumChunkBytes();
        boolean isValid = object.startOffset() >= 0
                && object.endOffset() >= object.startOffset()
                && !object.leaderEpochs().isEmpty()
                && object.part(SegmentObject.RECORDS).position() == 0
                && chunkBytes >= MIN_CHUNK_BYTES
                && chunkBytes <= MAX_CHUNK_BYTES
                && object.part(SegmentObject.CHECKSUMS).length()
                        == Integer.BYTES * (int) (((long) object.recordBytes() + chunkBytes - 1) / chunkBytes);
        if (!isValid) {
            throw new CorruptObject("invalid descriptor: offsets, leader epochs or checksums");
        }
    }

    /** Return the bytes of a part other than the records; none if the object has no such part. */
    static byte[] readPart(RemoteStore store, SegmentObject object, String partName) throws IOException {
        Part part = object.part(partName);
        byte[] raw = part.length() == 0
                ? new byte[0]
                : store.readRange(object.name(), object.objectBytes(), part.position(), part.length());
        if (part.length() > 0 && crc32c(raw, 0, raw.length) != part.crc32c()) {
            throw new CorruptObject(partName + " is damaged: wrong checksum");
        }
        return raw;
    }

    static int crc32c(byte[] bytes, int at, int length) {
        CRC32C crc = new CRC32C();
        crc.update(bytes, at, length);
        return (int) crc.getValue();
    }
}
