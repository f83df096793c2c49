package fluss.tiering.spark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/** Builds one scan, with filters pushed to Python and the partitions planned when it is built. */
final class FlussScanBuilder implements SupportsPushDownFilters {

    private final PythonSource source;
    private final StructType schema;
    private final PythonScanBuilder python;

    FlussScanBuilder(PythonSource source, StructType schema) {
        this.source = source;
        this.schema = schema;
        this.python = source.scanBuilder(schema);
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
        return PythonSource.withPushDown(() -> python.pushFilters(filters));
    }

    @Override
    public Filter[] pushedFilters() {
        return python.pushedFilters();
    }

    @Override
    public Scan build() {
        source.plan(schema);
        return python.build();
    }
}
