package fluss.tiering.spark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Builds one scan of the columns that a query needs. Python plans its partitions when it is built. */
final class FlussScanBuilder implements SupportsPushDownRequiredColumns {

    private final PythonSource source;
    private StructType schema;

    FlussScanBuilder(PythonSource source, StructType schema) {
        this.source = source;
        this.schema = schema;
    }

    @Override
    public void pruneColumns(StructType required) {
        // Rows without columns cannot be counted.
        schema = required.isEmpty() ? new StructType(new StructField[] {schema.fields()[0]}) : required;
    }

    @Override
    public Scan build() {
        return source.scan(schema);
    }
}
