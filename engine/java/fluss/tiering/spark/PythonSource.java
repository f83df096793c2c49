package fluss.tiering.spark;

import java.util.Map;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One use of the Python data source "fluss": to ask for a table's schema, or for one scan.
 *
 * <p>It is never used for two scans. Spark 4.1 keeps partitions in the provider, so a second scan would read the
 * partitions of the first one, however long ago it was.
 */
final class PythonSource {

    static final String NAME = "fluss";

    private final PythonDataSourceV2 provider = new PythonDataSourceV2();
    private final Map<String, String> options;
    private final CaseInsensitiveStringMap allOptions;

    PythonSource(Map<String, String> options) {
        this.options = Map.copyOf(options);
        this.allOptions = new CaseInsensitiveStringMap(this.options);
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

    /** Lets Python plan the partitions now, and returns the scan. */
    Scan scan(StructType schema) {
        provider.getOrCreateReadInfo(NAME, allOptions, schema, false);
        return new PythonScanBuilder(provider, NAME, schema, allOptions).build();
    }
}
