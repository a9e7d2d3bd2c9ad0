package ottla.spark;

import java.io.IOException;
import java.util.Arrays;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import ottla.spark.RecordParser.MalformedRecord;

/** Reader of a slice: fills the columns with as many records as are buffered. */
final class SliceReader implements AutoCloseable {
    private static final int WINDOW_BYTES = 1 << 20;
    private static final int HEADER_WINDOW_BYTES = 4096;
    private static final int MAX_ROWS = 8192;
    private static final int MAX_INFLATED_BYTES = 1 << 20;
    private static final int BATCH_OVERHEAD = BatchHeader.MAX_BYTES;

    private final LogSlice slice;
    private final RequiredColumns required;
    private final RecordColumns columns;
    private final RecordParser parser;
    private final BatchInflater inflater = new BatchInflater();
    private final SegmentReader segments;

    SliceReader(LogSlice slice, LogOptions options, RequiredColumns required, RecordColumns columns) {
        this.slice = slice;
        this.required = required;
        this.columns = columns;
        parser = new RecordParser(required, columns);
        segments = new SegmentReader(slice, options, required.none ? HEADER_WINDOW_BYTES : WINDOW_BYTES);
    }

    /** Replace the rows of the columns by the next ones; return false at the end of the slice. */
    boolean next() throws IOException {
        columns.clear();
        inflater.end = 0;
        while (true) {
            SegmentReader.Next next = segments.decode(!required.none);
            if (next == SegmentReader.Next.BATCH) {
                if (isFull(segments.header)) {
                    return true;
                }
                readBatch(segments.header);
            } else if (columns.rows > 0 && !required.none) {
                return true;
            } else if (next == SegmentReader.Next.END || !segments.fill(!required.none)) {
                return columns.rows > 0;
            }
        }
    }

    /** Return true if rows must be returned before the batch is read, since they refer to other bytes. */
    private boolean isFull(BatchHeader header) {
        if (columns.rows == 0 || required.none) {
            return columns.rows >= MAX_ROWS;
        }
        boolean isInBuffer = header.codec() == 0 && !header.isLegacy();
        boolean areInBuffer = columns.data == segments.buffer;
        return isInBuffer != areInBuffer || columns.rows >= MAX_ROWS || inflater.end >= MAX_INFLATED_BYTES;
    }

    private void readBatch(BatchHeader header) throws IOException {
        String damage = segments.checkOffsets();
        boolean isBeforeStart = header.lastOffset < segments.nextOffset;
        if (damage == null && !isBeforeStart && !required.none && !header.isLegacy()) {
            boolean isValid = BatchHeader.hasValidChecksum(segments.buffer, segments.at, header.sizeInBytes);
            damage = isValid ? null : "the checksum does not match";
        }
        if (damage == null && !isBeforeStart && !isLeftOut(header)) {
            if (header.isLegacy()) {
                damage = readLegacyBatch(header);
            } else if (!required.none || !countByHeader(header)) {
                damage = parseBatch(header);
            }
        }
        if (damage == null) {
            segments.advance();
        } else {
            segments.reportDamage(damage);
            segments.skipDamage();
        }
    }

    /** Return true for control batches and for batches of aborted transactions in a committed read. */
    private boolean isLeftOut(BatchHeader header) {
        return header.isControl()
                || (header.isTransactional() && slice.aborted().contains(header.producerId, header.baseOffset));
    }

    /** Add rows without columns for a batch; return false if the number of records in the range is not known. */
    private boolean countByHeader(BatchHeader header) {
        boolean isWithin = header.baseOffset >= slice.startOffset() && header.lastOffset < slice.endOffset();
        if (isWithin) {
            columns.rows += header.count;
        } else if (header.isContiguous()) {
            long from = Math.max(header.baseOffset, slice.startOffset());
            columns.rows += (int) Math.max(0, Math.min(header.lastOffset + 1, slice.endOffset()) - from);
        }
        return isWithin || header.isContiguous();
    }

    /** Parse a batch; return the damage that was found, or null. */
    private String parseBatch(BatchHeader header) throws IOException {
        byte[] bytes = segments.buffer;
        int start = segments.at;
        if (required.none) {
            bytes = segments.readWholeBatch();
            start = 0;
        }
        int length = header.sizeInBytes - BATCH_OVERHEAD;
        int before = inflater.end;
        try {
            if (header.codec() == 0) {
                columns.data = bytes;
                int first = start + BATCH_OVERHEAD;
                parser.parse(header, bytes, first, first + length, slice.startOffset(), slice.endOffset());
            } else {
                inflater.append(header, bytes, start + BATCH_OVERHEAD, length);
                columns.data = inflater.bytes;
                parser.parse(header, inflater.bytes, before, inflater.end, slice.startOffset(), slice.endOffset());
            }
            return null;
        } catch (MalformedRecord | IOException | IllegalArgumentException error) {
            inflater.end = before;
            return "malformed: " + error.getMessage();
        }
    }

    /** Parse a message of format 0 or 1 by Kafka's classes; return the damage that was found, or null. */
    private String readLegacyBatch(BatchHeader header) throws IOException {
        byte[] bytes = required.none
                ? segments.readWholeBatch()
                : Arrays.copyOfRange(segments.buffer, segments.at, segments.at + header.sizeInBytes);
        int rowsBefore = columns.rows;
        try {
            for (MutableRecordBatch batch : BatchRecords.of(bytes).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (record.offset() >= slice.startOffset() && record.offset() < slice.endOffset()) {
                        columns.ensureRows(1);
                        addLegacyRecord(batch, record);
                    }
                }
            }
            return null;
        } catch (RuntimeException error) {
            columns.rows = rowsBefore;
            return "malformed: " + error.getMessage();
        }
    }

    private void addLegacyRecord(MutableRecordBatch batch, Record record) {
        int row = columns.rows++;
        columns.offsets[row] = record.offset();
        columns.timestamps[row] = RecordParser.toMicros(record.timestamp());
        columns.timestampTypes[row] = batch.timestampType().id;
        columns.keyStarts[row] = inflater.end;
        columns.keyLengths[row] = inflater.appendField(record.key());
        columns.valueStarts[row] = inflater.end;
        columns.valueLengths[row] = inflater.appendField(record.value());
        columns.headerCounts[row] = 0;
        columns.data = inflater.bytes;
    }

    @Override
    public void close() throws IOException {
        inflater.close();
        segments.close();
    }
}
