package fluss.tiering.spark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Builds one scan. Filters are pushed to Python, and the partitions are planned when the scan is built. */
final class FlussScanBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {

    private final PythonSource source;
    private StructType schema;
    private PythonScanBuilder python;
    private boolean filtered;

    FlussScanBuilder(PythonSource source, StructType schema) {
        this.source = source;
        this.schema = schema;
        this.python = source.scanBuilder(schema);
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
        filtered = true;
        return PythonSource.withPushDown(() -> python.pushFilters(filters));
    }

    @Override
    public Filter[] pushedFilters() {
        return python.pushedFilters();
    }

    /** With filters, Python has already planned the scan with all columns. Usually few rows are left then. */
    @Override
    public void pruneColumns(StructType required) {
        if (filtered) {
            return;
        }
        // Rows without columns cannot be counted.
        schema = required.isEmpty() ? new StructType(new StructField[] {schema.fields()[0]}) : required;
        python = source.scanBuilder(schema);
    }

    @Override
    public Scan build() {
        source.plan(schema);
        return python.build();
    }
}
