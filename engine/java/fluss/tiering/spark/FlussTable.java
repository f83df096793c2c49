package fluss.tiering.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table that each query reads through the Python source. */
final class FlussTable implements SupportsRead {

    private final String name;
    private final Map<String, String> options;
    private final StructType schema;

    /** The source that returned the schema. It may serve one scan, which saves a start of Python. */
    private final AtomicReference<PythonSource> unused;

    FlussTable(String name, PythonSource source, StructType schema) {
        this.name = name;
        this.options = source.options();
        this.schema = schema;
        this.unused = new AtomicReference<>(source);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Column[] columns() {
        return CatalogV2Util.structTypeToV2Columns(schema);
    }

    @Override
    public Map<String, String> properties() {
        return Map.of("provider", PythonSource.NAME);
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap further) {
        Map<String, String> all = new HashMap<>(options);
        all.putAll(further.asCaseSensitiveMap());
        PythonSource first = all.equals(options) ? unused.getAndSet(null) : null;
        return new FlussScanBuilder(first == null ? new PythonSource(all) : first, schema);
    }
}
