package ottla.spark;

import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import ottla.spark.RecordVectors.SliceConstants;

/** Columnar reader of the slices of a task, one after the other. */
final class LogPartitionReader implements PartitionReader<ColumnarBatch> {
    private final LogOptions options;
    private final RequiredColumns required;
    private final Iterator<LogSlice> slices;
    private final RecordColumns columns = new RecordColumns();
    private final SliceConstants constants = new SliceConstants();
    private final ColumnarBatch batch;
    private SliceReader reader;

    LogPartitionReader(LogOptions options, StructType schema, LogInputPartition partition) throws IOException {
        this.options = options;
        required = new RequiredColumns(schema);
        slices = partition.slices().iterator();
        ColumnVector[] vectors = Arrays.stream(schema.fields())
                .map(field -> RecordVectors.of(field, columns, constants))
                .toArray(ColumnVector[]::new);
        batch = new ColumnarBatch(vectors);
    }

    @Override
    public boolean next() throws IOException {
        while (reader == null || !reader.next()) {
            if (!slices.hasNext()) {
                return false;
            }
            close();
            LogSlice slice = slices.next();
            constants.topic = UTF8String.fromString(slice.topic());
            constants.partition = slice.partition();
            reader = new SliceReader(slice, options, required, columns);
        }
        batch.setNumRows(columns.rows);
        return true;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (reader != null) {
            reader.close();
            reader = null;
        }
    }
}
