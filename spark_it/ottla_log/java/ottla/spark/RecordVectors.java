package ottla.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Views of {@link RecordColumns} as Spark's column vectors; binary values are copied when they are read. */
final class RecordVectors {
    private RecordVectors() {}

    /** Return the vector of a column of the source. */
    static ColumnVector of(StructField field, RecordColumns columns, SliceConstants constants) {
        return switch (field.name()) {
            case "key" -> new KeyVector(columns);
            case "value" -> new ValueVector(columns);
            case "topic" -> new TopicVector(constants);
            case "partition" -> new PartitionVector(constants);
            case "offset" -> new OffsetVector(columns);
            case "timestamp" -> new TimestampVector(columns);
            case "timestampType" -> new TimestampTypeVector(columns);
            case "headers" -> new HeadersVector(field.dataType(), columns);
            default -> throw new LogSourceException("Unknown column: " + field.name());
        };
    }

    /** Topic and partition of the slice that is being read. */
    static final class SliceConstants {
        UTF8String topic;
        int partition;
    }

    /** Base of the vectors: none of its getters is supported. */
    private abstract static class RecordVector extends ColumnVector {
        final RecordColumns columns;

        RecordVector(DataType type, RecordColumns columns) {
            super(type);
            this.columns = columns;
        }

        @Override
        public void close() {}

        @Override
        public boolean hasNull() {
            return true;
        }

        @Override
        public int numNulls() {
            return 0;
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }

        private UnsupportedOperationException unsupported() {
            return new UnsupportedOperationException("column of type " + type);
        }

        @Override
        public boolean getBoolean(int row) {
            throw unsupported();
        }

        @Override
        public byte getByte(int row) {
            throw unsupported();
        }

        @Override
        public short getShort(int row) {
            throw unsupported();
        }

        @Override
        public int getInt(int row) {
            throw unsupported();
        }

        @Override
        public long getLong(int row) {
            throw unsupported();
        }

        @Override
        public float getFloat(int row) {
            throw unsupported();
        }

        @Override
        public double getDouble(int row) {
            throw unsupported();
        }

        @Override
        public ColumnarArray getArray(int row) {
            throw unsupported();
        }

        @Override
        public ColumnarMap getMap(int row) {
            throw unsupported();
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            throw unsupported();
        }

        @Override
        public UTF8String getUTF8String(int row) {
            throw unsupported();
        }

        @Override
        public byte[] getBinary(int row) {
            throw unsupported();
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            throw unsupported();
        }
    }

    private static final class KeyVector extends RecordVector {
        KeyVector(RecordColumns columns) {
            super(DataTypes.BinaryType, columns);
        }

        @Override
        public boolean isNullAt(int row) {
            return columns.keyLengths[row] < 0;
        }

        @Override
        public byte[] getBinary(int row) {
            int start = columns.keyStarts[row];
            int length = columns.keyLengths[row];
            return length < 0 ? null : Arrays.copyOfRange(columns.data, start, start + length);
        }
    }

    private static final class ValueVector extends RecordVector {
        ValueVector(RecordColumns columns) {
            super(DataTypes.BinaryType, columns);
        }

        @Override
        public boolean isNullAt(int row) {
            return columns.valueLengths[row] < 0;
        }

        @Override
        public byte[] getBinary(int row) {
            int start = columns.valueStarts[row];
            int length = columns.valueLengths[row];
            return length < 0 ? null : Arrays.copyOfRange(columns.data, start, start + length);
        }
    }

    private static final class TopicVector extends RecordVector {
        private final SliceConstants constants;

        TopicVector(SliceConstants constants) {
            super(DataTypes.StringType, null);
            this.constants = constants;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return constants.topic;
        }
    }

    private static final class PartitionVector extends RecordVector {
        private final SliceConstants constants;

        PartitionVector(SliceConstants constants) {
            super(DataTypes.IntegerType, null);
            this.constants = constants;
        }

        @Override
        public int getInt(int row) {
            return constants.partition;
        }
    }

    private static final class OffsetVector extends RecordVector {
        OffsetVector(RecordColumns columns) {
            super(DataTypes.LongType, columns);
        }

        @Override
        public long getLong(int row) {
            return columns.offsets[row];
        }
    }

    private static final class TimestampVector extends RecordVector {
        TimestampVector(RecordColumns columns) {
            super(DataTypes.TimestampType, columns);
        }

        @Override
        public long getLong(int row) {
            return columns.timestamps[row];
        }
    }

    private static final class TimestampTypeVector extends RecordVector {
        TimestampTypeVector(RecordColumns columns) {
            super(DataTypes.IntegerType, columns);
        }

        @Override
        public int getInt(int row) {
            return columns.timestampTypes[row];
        }
    }

    /** Headers of a record, null for a record without headers, as Spark's connector has it. */
    private static final class HeadersVector extends RecordVector {
        private final ColumnVector elements;

        HeadersVector(DataType type, RecordColumns columns) {
            super(type, columns);
            elements = new HeaderVector(((org.apache.spark.sql.types.ArrayType) type).elementType(), columns);
        }

        @Override
        public boolean isNullAt(int row) {
            return columns.headerCounts[row] == 0;
        }

        @Override
        public ColumnarArray getArray(int row) {
            return new ColumnarArray(elements, columns.headerIndexes[row], columns.headerCounts[row]);
        }
    }

    private static final class HeaderVector extends RecordVector {
        private final ColumnVector keys;
        private final ColumnVector values;

        HeaderVector(DataType type, RecordColumns columns) {
            super(type, columns);
            keys = new HeaderKeyVector(columns);
            values = new HeaderValueVector(columns);
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            return ordinal == 0 ? keys : values;
        }
    }

    private static final class HeaderKeyVector extends RecordVector {
        HeaderKeyVector(RecordColumns columns) {
            super(DataTypes.StringType, columns);
        }

        @Override
        public UTF8String getUTF8String(int header) {
            int start = columns.headerKeyStarts[header];
            int length = columns.headerKeyLengths[header];
            return UTF8String.fromBytes(Arrays.copyOfRange(columns.data, start, start + length));
        }
    }

    private static final class HeaderValueVector extends RecordVector {
        HeaderValueVector(RecordColumns columns) {
            super(DataTypes.BinaryType, columns);
        }

        @Override
        public boolean isNullAt(int header) {
            return columns.headerValueLengths[header] < 0;
        }

        @Override
        public byte[] getBinary(int header) {
            int start = columns.headerValueStarts[header];
            int length = columns.headerValueLengths[header];
            return length < 0 ? null : Arrays.copyOfRange(columns.data, start, start + length);
        }
    }
}
