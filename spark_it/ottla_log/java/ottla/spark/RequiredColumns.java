package ottla.spark;

import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.types.StructType;

/** Parts of a record that a query needs; parsing of a record ends behind the last one. */
final class RequiredColumns {
    final boolean key;
    final boolean value;
    final boolean headers;
    final boolean timestamp;

    /** True if the batch header gives all columns: no record is parsed. */
    final boolean none;

    /** True if fields behind timestamp and offset are needed. */
    final boolean payload;

    RequiredColumns(StructType schema) {
        Set<String> names = new TreeSet<>(Arrays.asList(schema.fieldNames()));
        key = names.contains("key");
        value = names.contains("value");
        headers = names.contains("headers");
        timestamp = names.contains("timestamp");
        payload = key || value || headers;
        names.removeAll(Set.of("topic", "partition"));
        none = names.isEmpty();
    }
}
