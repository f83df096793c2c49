import java.util.ArrayList;
import java.util.List;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Prints what Flink SQL answers, a line for each row with its kind. Arguments: bootstrap servers of the Fluss cluster,
 * which is the catalog "fluss", the query, and for streaming mode after how many rows to end; else it is batch mode.
 */
public final class UnionRead {
    private UnionRead() {}

    public static void main(String[] arguments) throws Exception {
        boolean streaming = arguments.length > 2;
        long left = streaming ? Long.parseLong(arguments[2]) : Long.MAX_VALUE;
        TableEnvironment environment =
                TableEnvironment.create(
                        streaming ? EnvironmentSettings.inStreamingMode() : EnvironmentSettings.inBatchMode());
        environment.executeSql(
                "CREATE CATALOG fluss WITH ('type' = 'fluss', 'bootstrap.servers' = '" + arguments[0] + "')");
        System.out.println("plan " + environment.explainSql(arguments[1]).replace("\n", " | "));
        try (CloseableIterator<Row> rows = environment.executeSql(arguments[1]).collect()) {
            for (; left > 0 && rows.hasNext(); left--) {
                Row row = rows.next();
                List<Object> values = new ArrayList<>();
                for (int i = 0; i < row.getArity(); i++) {
                    values.add(row.getField(i));
                }
                System.out.println("row [" + Json.value(row.getKind().shortString()) + "] " + Json.array(values));
            }
        }
    }
}
