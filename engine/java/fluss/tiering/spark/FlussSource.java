package fluss.tiering.spark;

import java.util.Map;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** {@code format("fluss")}. Spark finds it before the Python source of this name, through which it reads. */
public final class FlussSource implements TableProvider, DataSourceRegister {

    private PythonSource inferred;

    @Override
    public String shortName() {
        return PythonSource.NAME;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        inferred = new PythonSource(options.asCaseSensitiveMap());
        return inferred.schema();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        PythonSource source = inferred;
        inferred = null;
        if (source == null || !source.options().equals(properties)) {
            source = new PythonSource(properties);
        }
        return new FlussTable(PythonSource.NAME, source, schema);
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }
}
