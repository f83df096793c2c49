package fluss.tiering.iceberg;

import java.util.List;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.types.Types;

/** Changes of the columns of a table, which keep the ids of all that stay. */
final class ColumnChanges {

    private ColumnChanges() {}

    /**
     * Make changes and set properties in one commit, of a table that still has the schema that they were made for.
     *
     * @param asked the id of that schema; the columns to drop, to make optional, to widen by a column of the same name,
     *     to rename and to add; the column before which those are added, or null; and the properties
     */
    static void make(LakeTable table, JsonNode asked) {
        Transaction transaction = table.newTransaction();
        if (transaction.table().schema().schemaId() != asked.get("schema").asInt()) {
            throw new CommitFailedException("The schema was changed meanwhile");
        }
        UpdateSchema changed = transaction.updateSchema();
        Json.texts(asked.get("dropped")).forEach(changed::deleteColumn);
        Json.texts(asked.get("optional")).forEach(changed::makeColumnOptional);
        for (Types.NestedField each : fields(asked.get("widened"))) {
            changed.updateColumn(each.name(), each.type().asPrimitiveType());
        }
        for (JsonNode each : asked.get("renamed")) {
            changed.renameColumn(each.get(0).asText(), each.get(1).asText());
        }
        changed.commit();
        // A second update, since a column may be added with the name that another one had.
        UpdateSchema added = transaction.updateSchema();
        for (Types.NestedField each : fields(asked.get("added"))) {
            added.addColumn(null, each.name(), each.type(), each.doc());
            if (!asked.get("before").isNull()) {
                added.moveBefore(each.name(), asked.get("before").asText());
            }
        }
        added.commit();
        UpdateProperties properties = transaction.updateProperties();
        Json.textsByKey(asked.get("properties")).forEach(properties::set);
        properties.commit();
        transaction.commitTransaction();
    }

    private static List<Types.NestedField> fields(JsonNode schema) {
        return SchemaParser.fromJson(schema.toString()).columns();
    }
}
