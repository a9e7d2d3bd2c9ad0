package ottla.spark;

import org.apache.spark.sql.types.StructType;

/** Columns of the source: those of Spark's Kafka connector, in its order. */
final class LogSchema {
    private static final String COLUMNS =
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int";
    private static final String HEADERS = ", headers array<struct<key: string, value: binary>>";

    private LogSchema() {}

    static StructType of(boolean includeHeaders) {
        return StructType.fromDDL(includeHeaders ? COLUMNS + HEADERS : COLUMNS);
    }
}
