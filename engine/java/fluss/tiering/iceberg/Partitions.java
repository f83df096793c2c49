package fluss.tiering.iceberg;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BinaryOperator;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.UnboundTerm;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.transforms.Transform;

/** The partitions of a table, as expressions and as values. */
final class Partitions {

    private Partitions() {}

    /** Return the rows of some partitions, of which each has a value for each field; of all if there is no list. */
    static Expression exactly(Table table, JsonNode partitions) {
        if (partitions == null || partitions.isNull()) {
            return Expressions.alwaysTrue();
        }
        List<Expression> each = new ArrayList<>();
        partitions.forEach(values -> each.add(exactly(table, table.spec().fields(), values)));
        return joined(each);
    }

    /** Return the rows of some partitions, of which each has a text for each of the leading fields; of all without. */
    static Expression withKeys(Table table, JsonNode partitions, int leading) {
        if (partitions == null || partitions.isNull() || leading == 0) {
            return Expressions.alwaysTrue();
        }
        List<PartitionField> keys = table.spec().fields().subList(0, leading);
        List<Expression> each = new ArrayList<>();
        partitions.forEach(values -> each.add(exactly(table, keys, values)));
        return joined(each);
    }

    /**
     * Return the rows of some buckets of a partition, which has a value for each field but the last one. Without a list of
     * buckets, it has a value for each field.
     */
    static Expression withBuckets(Table table, JsonNode values, JsonNode buckets) {
        List<PartitionField> fields = table.spec().fields();
        if (buckets.isNull()) {
            return exactly(table, fields, values);
        }
        int last = fields.size() - 1;
        List<Object> numbers = new ArrayList<>();
        buckets.forEach(each -> numbers.add(each.asInt()));
        Expression wanted = Expressions.in(term(table, fields.get(last)), numbers);
        return Expressions.and(exactly(table, fields.subList(0, last), values), wanted);
    }

    /** Return the values of a partition. Other types than numbers are told as texts. */
    static ArrayNode values(StructLike partition) {
        ArrayNode values = Json.array();
        for (int field = 0; field < partition.size(); field++) {
            Object value = partition.get(field, Object.class);
            boolean isPlain = value instanceof Boolean || value instanceof Integer || value instanceof Long;
            values.add(Json.MAPPER.<JsonNode>valueToTree(value == null || isPlain ? value : value.toString()));
        }
        return values;
    }

    private static Expression exactly(Table table, List<PartitionField> fields, JsonNode values) {
        Expression wanted = Expressions.alwaysTrue();
        for (int number = 0; number < fields.size(); number++) {
            JsonNode value = values.get(number);
            String name = table.schema().findColumnName(fields.get(number).sourceId());
            Expression one = value.isNull()
                    ? Expressions.isNull(name)
                    : Expressions.equal(term(table, fields.get(number)), plain(value));
            wanted = Expressions.and(wanted, one);
        }
        return wanted;
    }

    @SuppressWarnings("unchecked")
    private static UnboundTerm<Object> term(Table table, PartitionField field) {
        String name = table.schema().findColumnName(field.sourceId());
        Transform<?, Object> transform = (Transform<?, Object>) field.transform();
        return transform.isIdentity() ? Expressions.ref(name) : Expressions.transform(name, transform);
    }

    private static Object plain(JsonNode value) {
        if (value.isBoolean()) {
            return value.asBoolean();
        }
        return value.isInt() ? (Object) value.asInt() : value.isNumber() ? (Object) value.asLong() : value.asText();
    }

    /** Iceberg visits an expression by recursion, which must not become as deep as there are partitions. */
    private static Expression joined(List<Expression> each) {
        BinaryOperator<Expression> or = Expressions::or;
        List<Expression> left = each;
        while (left.size() > 1) {
            List<Expression> pairs = new ArrayList<>();
            for (int number = 0; number < left.size(); number += 2) {
                boolean isPair = number + 1 < left.size();
                pairs.add(isPair ? or.apply(left.get(number), left.get(number + 1)) : left.get(number));
            }
            left = pairs;
        }
        return left.get(0);
    }
}
