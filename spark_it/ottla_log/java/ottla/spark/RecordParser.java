package ottla.spark;

import java.sql.Timestamp;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;

/**
 * Parser of the uncompressed records of a batch of format 2 into columns, without an object for a record.
 *
 * <p>Source: {@code DefaultRecord} (Apache Kafka 4.3.1).
 */
final class RecordParser {
    private static final long MIN_EXACT_MS = -2_208_988_800_000L;
    private static final long MAX_EXACT_MS = Long.MAX_VALUE / 1000;
    private static final int MAX_VARINT_SHIFT = 28;
    private static final int MAX_VARLONG_SHIFT = 63;

    private final RequiredColumns required;
    private final RecordColumns columns;
    private byte[] bytes;
    private int at;

    RecordParser(RequiredColumns required, RecordColumns columns) {
        this.required = required;
        this.columns = columns;
    }

    /** Malformed record in a batch. */
    static final class MalformedRecord extends Exception {
        private static final long serialVersionUID = 1;

        MalformedRecord(String message) {
            super(message, null, false, false);
        }
    }

    /**
     * Append the records of a batch with offsets from {@code from} to {@code to}, which is excluded.
     *
     * @throws MalformedRecord if the records do not fill the range of bytes; columns then are as before
     */
    void parse(BatchHeader header, byte[] source, int start, int end, long from, long to) throws MalformedRecord {
        int rowsBefore = columns.rows;
        int headersBefore = columns.headers;
        bytes = source;
        at = start;
        try {
            // A record takes 7 bytes at least: a count beyond that is no reason for memory.
            if (header.count > (end - start) / 7) {
                throw new MalformedRecord(header.count + " records in " + (end - start) + " bytes");
            }
            columns.ensureRows(header.count);
            for (int number = 0; number < header.count; number++) {
                parseRecord(header, end, from, to);
            }
            if (at != end) {
                throw new MalformedRecord((end - at) + " bytes behind the last record");
            }
        } catch (MalformedRecord | ArrayIndexOutOfBoundsException error) {
            columns.rows = rowsBefore;
            columns.headers = headersBefore;
            throw error instanceof MalformedRecord malformed ? malformed : new MalformedRecord("record out of bounds");
        }
    }

    private void parseRecord(BatchHeader header, int end, long from, long to) throws MalformedRecord {
        int length = varint();
        int recordEnd = at + length;
        if (length <= 0 || recordEnd > end || recordEnd < 0) {
            throw new MalformedRecord("record of " + length + " bytes");
        }
        at++;
        long timestamp = header.baseTimestamp + varlong();
        long offset = header.baseOffset + varint();
        if (offset < from || offset >= to) {
            at = recordEnd;
            return;
        }
        int row = columns.rows;
        columns.offsets[row] = offset;
        if (required.timestamp) {
            columns.timestamps[row] = toMicros(header.hasLogAppendTime() ? header.maxTimestamp : timestamp);
        }
        columns.timestampTypes[row] = header.hasLogAppendTime() ? 1 : 0;
        if (required.payload) {
            parsePayload(row, recordEnd);
        }
        at = recordEnd;
        columns.rows = row + 1;
    }

    private void parsePayload(int row, int recordEnd) throws MalformedRecord {
        int length = varint();
        columns.keyStarts[row] = at;
        columns.keyLengths[row] = length;
        skip(length, recordEnd);
        if (!required.value && !required.headers) {
            return;
        }
        length = varint();
        columns.valueStarts[row] = at;
        columns.valueLengths[row] = length;
        skip(length, recordEnd);
        if (!required.headers) {
            return;
        }
        int count = varint();
        if (count < 0 || count > recordEnd - at) {
            throw new MalformedRecord(count + " headers");
        }
        columns.headerIndexes[row] = columns.headers;
        columns.headerCounts[row] = count;
        for (int number = 0; number < count; number++) {
            int keyLength = varint();
            int keyStart = at;
            if (keyLength < 0) {
                throw new MalformedRecord("header without a key");
            }
            skip(keyLength, recordEnd);
            int valueLength = varint();
            columns.addHeader(keyStart, keyLength, at, valueLength);
            skip(valueLength, recordEnd);
        }
    }

    private void skip(int length, int recordEnd) throws MalformedRecord {
        if (length > recordEnd - at) {
            throw new MalformedRecord("field of " + length + " bytes");
        }
        if (length > 0) {
            at += length;
        }
    }

    private int varint() throws MalformedRecord {
        byte next = bytes[at++];
        if (next >= 0) {
            return (next >>> 1) ^ -(next & 1);
        }
        int value = next & 0x7f;
        for (int shift = 7; shift <= MAX_VARINT_SHIFT; shift += 7) {
            next = bytes[at++];
            value |= (next & 0x7f) << shift;
            if (next >= 0) {
                return (value >>> 1) ^ -(value & 1);
            }
        }
        throw new MalformedRecord("varint of more than 5 bytes");
    }

    private long varlong() throws MalformedRecord {
        byte next = bytes[at++];
        if (next >= 0) {
            return (next >>> 1) ^ -(next & 1);
        }
        long value = next & 0x7f;
        for (int shift = 7; shift <= MAX_VARLONG_SHIFT; shift += 7) {
            next = bytes[at++];
            value |= (next & 0x7fL) << shift;
            if (next >= 0) {
                return (value >>> 1) ^ -(value & 1);
            }
        }
        throw new MalformedRecord("varint of more than 10 bytes");
    }

    /** Return a timestamp (ms) as Spark's connector converts it, in microseconds. */
    static long toMicros(long timestamp) {
        if (timestamp >= MIN_EXACT_MS && timestamp <= MAX_EXACT_MS) {
            return timestamp * 1000;
        }
        return DateTimeUtils.fromJavaTimestamp(new Timestamp(timestamp));
    }
}
