package ottla.spark;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** Scan of log directories with the columns that a query needs. */
final class LogScan implements ScanBuilder, Scan, SupportsPushDownRequiredColumns {
    private final LogOptions options;
    private StructType requiredSchema;

    LogScan(LogOptions options, StructType schema) {
        this.options = options;
        this.requiredSchema = schema;
    }

    @Override
    public void pruneColumns(StructType schema) {
        requiredSchema = schema;
    }

    @Override
    public Scan build() {
        return this;
    }

    @Override
    public StructType readSchema() {
        return requiredSchema;
    }

    @Override
    public String description() {
        return "ottla-log " + options.topics + " in " + options.places();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public Batch toBatch() {
        return new LogBatch(options, requiredSchema);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        return new LogMicroBatchStream(options, requiredSchema, checkpointLocation);
    }
}
