package fluss.tiering.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One use of the Python data source "fluss": to ask for a table's schema, or for one scan.
 *
 * <p>It is never used for two scans. Spark 4.1 keeps partitions and pushed filters in the provider, so a second scan
 * would read the partitions of the first one with its filters, however long ago it was.
 */
final class PythonSource {

    static final String NAME = "fluss";

    /** Tells the Python source that it may accept filters, which is safe only if each scan has its own provider. */
    private static final String ACCEPTS_FILTERS = "acceptsFilters";

    private static final String PUSH_DOWN = "spark.sql.python.filterPushdown.enabled";

    private final PythonDataSourceV2 provider = new PythonDataSourceV2();
    private final Map<String, String> options;
    private final CaseInsensitiveStringMap allOptions;

    PythonSource(Map<String, String> options) {
        this.options = Map.copyOf(options);
        Map<String, String> all = new HashMap<>(options);
        all.put(ACCEPTS_FILTERS, "true");
        this.allOptions = new CaseInsensitiveStringMap(all);
        provider.setShortName(NAME);
        if (!SparkSession.active().sessionState().dataSourceManager().dataSourceExists(NAME)) {
            throw new IllegalArgumentException(
                    "The Python that Spark's driver runs does not have the package fluss-tiering[spark]: "
                            + "set the environment variable PYSPARK_PYTHON to one that has it before Spark starts");
        }
    }

    Map<String, String> options() {
        return options;
    }

    /** Returns the schema that the server gives for the table. */
    StructType schema() {
        return provider.inferSchema(allOptions);
    }

    PythonScanBuilder scanBuilder(StructType schema) {
        return new PythonScanBuilder(provider, NAME, schema, allOptions);
    }

    /** Lets Python plan the partitions now, unless it has done so when filters were pushed. */
    PythonDataSourceReadInfo plan(StructType schema) {
        return withPushDown(() -> provider.getOrCreateReadInfo(NAME, allOptions, schema, false));
    }

    /** Runs with filter push-down for Python sources, which Spark does not enable by default. */
    static <T> T withPushDown(Supplier<T> work) {
        SQLConf conf = SQLConf.get().clone();
        conf.setConfString(PUSH_DOWN, "true");
        return SQLConf.withExistingConf(conf, work::get);
    }
}
