package fluss.tiering.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Lets Spark read the databases and tables of a tiering server, and the database {@code sys} of system tables.
 *
 * <p>It is the value of {@code spark.sql.catalog.NAME}. The value of {@code spark.sql.catalog.NAME.server} is the
 * server's HOST:PORT. Nothing is cached: each query asks the server.
 */
public final class FlussCatalog implements TableCatalog, SupportsNamespaces {

    private static final String SYSTEM_DATABASE = "sys";
    private static final String STATUS_TABLE = "lake_tiering_status";

    /** Stands for the names of all tables in the Python source. No table can have this name. */
    private static final String TABLE_LIST = "sys.__tables";

    /** The code in the message of the Python source's error. */
    private static final String NO_SUCH_TABLE = "[TABLE_NOT_EXIST]";

    private String name;
    private Map<String, String> options;

    @Override
    public void initialize(String catalogName, CaseInsensitiveStringMap catalogOptions) {
        name = catalogName;
        options = Map.copyOf(catalogOptions.asCaseSensitiveMap());
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String[][] listNamespaces() {
        TreeSet<String> databases = new TreeSet<>();
        databases.add(SYSTEM_DATABASE);
        serverTables().forEach(table -> databases.add(table.namespace()[0]));
        return databases.stream().map(database -> new String[] {database}).toArray(String[][]::new);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        loadNamespaceMetadata(namespace);
        return new String[0][];
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (Arrays.stream(listNamespaces()).noneMatch(known -> Arrays.equals(known, namespace))) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Map.of();
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        List<Identifier> tables = new ArrayList<>(serverTables());
        tables.removeIf(table -> !Arrays.equals(table.namespace(), namespace));
        if (Arrays.equals(namespace, new String[] {SYSTEM_DATABASE})) {
            tables.removeIf(table -> table.name().equals(STATUS_TABLE));
            tables.add(0, Identifier.of(namespace, STATUS_TABLE));
        }
        if (tables.isEmpty()) {
            throw new NoSuchNamespaceException(namespace);
        }
        return tables.toArray(Identifier[]::new);
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        if (table.namespace().length != 1) {
            throw new NoSuchTableException(table);
        }
        PythonSource source = new PythonSource(with(table.namespace()[0] + "." + table.name()));
        return new FlussTable(name + "." + table, source, schema(table, source));
    }

    private static StructType schema(Identifier table, PythonSource source) throws NoSuchTableException {
        try {
            return source.schema();
        } catch (Exception error) { // Scala declares no exception that it throws.
            if (error instanceof AnalysisException && error.getMessage().contains(NO_SUCH_TABLE)) {
                throw new NoSuchTableException(table);
            }
            throw error;
        }
    }

    /** Returns the server's tables by database, as a schema. Reading them as rows would need a Spark job. */
    private List<Identifier> serverTables() {
        List<Identifier> tables = new ArrayList<>();
        for (StructField database : new PythonSource(with(TABLE_LIST)).schema().fields()) {
            for (String table : ((StructType) database.dataType()).fieldNames()) {
                tables.add(Identifier.of(new String[] {database.name()}, table));
            }
        }
        return tables;
    }

    private Map<String, String> with(String table) {
        Map<String, String> all = new HashMap<>(options);
        all.put("table", table);
        return all;
    }

    @Override
    public Table createTable(Identifier table, TableInfo info) {
        throw readOnly();
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropTable(Identifier table) {
        throw readOnly();
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw readOnly();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw readOnly();
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw readOnly();
    }

    private UnsupportedOperationException readOnly() {
        return new UnsupportedOperationException(
                "Catalog " + name + " can only be read: change tables with `fluss-tiering tables` and `fluss-tiering put`");
    }
}
