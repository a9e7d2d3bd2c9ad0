package ottla.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark data source {@code ottla-log}: records of Kafka log directories, and of Ottla's remote stores of tiered storage,
 * read without a broker. Settings {@code spark.datasource.ottla-log.NAME} of a session are defaults of its options.
 */
public final class LogSource implements TableProvider, DataSourceRegister, SessionConfigSupport {
    @Override
    public String shortName() {
        return "ottla-log";
    }

    @Override
    public String keyPrefix() {
        return shortName();
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return LogSchema.of(new LogOptions(options).includeHeaders);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new LogTable(schema);
    }
}
