package ottla.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** Ranges of offsets that one task reads. */
record LogInputPartition(List<LogSlice> slices) implements InputPartition {
    private static final long serialVersionUID = 1;
}
