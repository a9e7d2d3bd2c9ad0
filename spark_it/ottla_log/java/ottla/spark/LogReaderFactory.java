package ottla.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Factory of the columnar readers of input partitions. */
final class LogReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;
    private final LogOptions options;
    private final StructType schema;

    LogReaderFactory(LogOptions options, StructType schema) {
        this.options = options;
        this.schema = schema;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("the source reads columnar batches only");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        try {
            return new LogPartitionReader(options, schema, (LogInputPartition) partition);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
