package ottla.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import org.apache.kafka.common.record.RecordBatch;

/**
 * Header of a record batch of format 2, or of a message of format 0 or 1.
 *
 * <p>Source: {@code DefaultRecordBatch}, {@code LegacyRecord} (Apache Kafka 4.3.1).
 */
final class BatchHeader {
    /** Bytes that a header has at most. */
    static final int MAX_BYTES = 61;

    private static final int LOG_OVERHEAD = 12;
    private static final int MIN_LEGACY_BYTES = 26;
    private static final int CODEC_MASK = 7;
    private static final int LOG_APPEND_TIME_MASK = 8;
    private static final int TRANSACTIONAL_MASK = 16;
    private static final int CONTROL_MASK = 32;
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);

    /** Offset of the first record; of a compressed message of format 0 or 1 that of the last one. */
    long baseOffset;

    long lastOffset;
    int sizeInBytes;
    byte magic;
    int attributes;
    long baseTimestamp;
    long maxTimestamp;
    long producerId;
    int count;

    /** Decode the header at a position; return false if it is incomplete or no header. */
    boolean decode(byte[] bytes, int at, int available) {
        if (available < MIN_LEGACY_BYTES) {
            return false;
        }
        baseOffset = (long) LONG.get(bytes, at);
        int length = (int) INT.get(bytes, at + 8);
        magic = bytes[at + 16];
        if (baseOffset < 0 || length < MIN_LEGACY_BYTES - LOG_OVERHEAD || length > Integer.MAX_VALUE - LOG_OVERHEAD) {
            return false;
        }
        sizeInBytes = length + LOG_OVERHEAD;
        if (magic == RecordBatch.MAGIC_VALUE_V2) {
            return available >= MAX_BYTES && sizeInBytes >= MAX_BYTES && decodeFields(bytes, at);
        }
        return (magic == 0 || magic == 1) && decodeLegacyFields(bytes, at);
    }

    private boolean decodeFields(byte[] bytes, int at) {
        attributes = bytes[at + 21] << 8 | bytes[at + 22] & 0xff;
        int lastOffsetDelta = (int) INT.get(bytes, at + 23);
        baseTimestamp = (long) LONG.get(bytes, at + 27);
        maxTimestamp = (long) LONG.get(bytes, at + 35);
        producerId = (long) LONG.get(bytes, at + 43);
        count = (int) INT.get(bytes, at + 57);
        lastOffset = baseOffset + lastOffsetDelta;
        return lastOffsetDelta >= 0 && count >= 0;
    }

    private boolean decodeLegacyFields(byte[] bytes, int at) {
        attributes = bytes[at + 17] & 0xff;
        maxTimestamp = magic == 1 ? (long) LONG.get(bytes, at + 18) : RecordBatch.NO_TIMESTAMP;
        baseTimestamp = maxTimestamp;
        producerId = RecordBatch.NO_PRODUCER_ID;
        count = -1;
        lastOffset = baseOffset;
        return true;
    }

    /** Return true if the checksum of the batch that begins at a position matches its bytes. */
    static boolean hasValidChecksum(byte[] bytes, int at, int sizeInBytes) {
        java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
        crc.update(bytes, at + 21, sizeInBytes - 21);
        return (int) crc.getValue() == (int) INT.get(bytes, at + 17);
    }

    boolean isLegacy() {
        return magic < RecordBatch.MAGIC_VALUE_V2;
    }

    int codec() {
        return attributes & CODEC_MASK;
    }

    boolean hasLogAppendTime() {
        return (attributes & LOG_APPEND_TIME_MASK) != 0;
    }

    boolean isTransactional() {
        return !isLegacy() && (attributes & TRANSACTIONAL_MASK) != 0;
    }

    boolean isControl() {
        return !isLegacy() && (attributes & CONTROL_MASK) != 0;
    }

    /** Return true if the batch holds each offset from its first to its last: it was not compacted. */
    boolean isContiguous() {
        return !isLegacy() && count == lastOffset - baseOffset + 1;
    }
}
