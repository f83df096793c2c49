package fluss.tiering.iceberg;

import org.apache.iceberg.NullOrder;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.ReplaceSortOrder;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;

/** What Python asks of a lake catalog. The jar is loaded below Iceberg's classes, and this class is made first. */
public final class Library {

    /**
     * Return a table of a catalog; null if there is none. An exception would cost Python a dozen calls, each of which
     * looks for classes in all of Spark's jars.
     */
    public LakeTable load(Catalog catalog, String identifier, String branch) {
        try {
            return new LakeTable(catalog.loadTable(TableIdentifier.parse(identifier)), branch);
        } catch (NoSuchTableException error) {
            // A table of Hive that is none of Iceberg's has an exception of its own below this one.
            if (error.getClass() != NoSuchTableException.class) {
                throw error;
            }
            return null;
        }
    }

    /** Return a table of a catalog as it is now, with credentials that the catalog vends now. */
    public LakeTable reload(Catalog catalog, String identifier, String branch) {
        return new LakeTable(catalog.loadTable(TableIdentifier.parse(identifier)), branch);
    }

    /** Return a table whose commits are settled. */
    public LakeTable of(Table table) {
        return new LakeTable(table, SnapshotRef.MAIN_BRANCH);
    }

    /**
     * Create a table, unless somebody else creates it at the same time.
     *
     * @param question the schema, the fields of the partition spec, each a column, a transform and its number; the
     *     properties; and the columns of the sort order
     */
    public LakeTable create(Catalog catalog, String identifier, String branch, String question) {
        JsonNode asked = Json.read(question);
        TableIdentifier name = TableIdentifier.parse(identifier);
        Schema schema = SchemaParser.fromJson(asked.get("schema").toString());
        PartitionSpec.Builder spec = PartitionSpec.builderFor(schema);
        for (JsonNode field : asked.get("fields")) {
            spec = withField(spec, field.get(0).asText(), field.get(1).asText(), field.get(2).asInt());
        }
        Catalog.TableBuilder builder = catalog.buildTable(name, schema).withPartitionSpec(spec.build());
        builder.withProperties(Json.textsByKey(asked.get("properties")));
        createNamespace((SupportsNamespaces) catalog, name.namespace());
        try {
            Transaction created = builder.createTransaction();
            // The order comes second, so that the table also has the order of an unsorted table. Spark's own compaction
            // refuses to sort a table that lacks it.
            if (!asked.get("sortedBy").isEmpty()) {
                ReplaceSortOrder order = created.replaceSortOrder();
                asked.get("sortedBy").forEach(each -> order.asc(Expressions.ref(each.asText()), NullOrder.NULLS_FIRST));
                order.commit();
            }
            created.commitTransaction();
        } catch (RuntimeException error) {
            // Somebody else may have created the table meanwhile, which is told by several exceptions.
            if (!catalog.tableExists(name)) {
                throw error;
            }
        }
        return new LakeTable(catalog.loadTable(name), branch);
    }

    private static PartitionSpec.Builder withField(
            PartitionSpec.Builder spec, String column, String transform, int number) {
        switch (transform) {
            case "year":
                return spec.year(column);
            case "month":
                return spec.month(column);
            case "day":
                return spec.day(column);
            case "hour":
                return spec.hour(column);
            case "bucket":
                return spec.bucket(column, number);
            case "truncate":
                return spec.truncate(column, number);
            default:
                return spec.identity(column);
        }
    }

    private static void createNamespace(SupportsNamespaces catalog, Namespace namespace) {
        try {
            catalog.createNamespace(namespace);
        } catch (RuntimeException error) {
            // Somebody else may create it at the same time. The JDBC catalog then fails on its own unique key.
            if (!catalog.namespaceExists(namespace)) {
                throw error;
            }
        }
    }
}
