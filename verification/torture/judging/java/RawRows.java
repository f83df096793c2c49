import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.metadata.LakeSnapshot;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.lake.iceberg.source.IcebergLakeSource;
import org.apache.fluss.lake.iceberg.source.IcebergSplit;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.record.LogRecord;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.types.DataTypeRoot;
import org.apache.fluss.types.RowType;
import org.apache.fluss.utils.CloseableIterator;

/**
 * Reads lake tables by Fluss's own lake reader, as long as its standard input asks for them: a line is a database, a
 * table and the positions of columns, with spaces between. The answer is "snapshot" and its id, a line "row" for each
 * row with its values, and "end"; or "failed" and a reason. Values are numbers, or text in hex, and "null".
 *
 * <p>Arguments: bootstrap servers, then settings of the Iceberg catalog as key=value.
 */
public final class RawRows {
    private RawRows() {}

    public static void main(String[] arguments) throws Exception {
        Configuration client = new Configuration();
        client.setString("bootstrap.servers", arguments[0]);
        Configuration catalog = new Configuration();
        for (int i = 1; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            catalog.setString(setting[0], setting[1]);
        }
        try (Connection connection = ConnectionFactory.createConnection(client);
                Admin admin = connection.getAdmin();
                BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            System.out.println("ready");
            for (String line = asked.readLine(); line != null; line = asked.readLine()) {
                try {
                    answer(admin, catalog, line.split(" "));
                    System.out.println("end");
                } catch (Throwable error) {
                    System.out.println("failed " + String.valueOf(error).replaceAll("\\s+", " "));
                    error.printStackTrace();
                }
            }
        }
    }

    private static void answer(Admin admin, Configuration catalog, String[] asked) throws Exception {
        TablePath path = TablePath.of(asked[0], asked[1]);
        int[] columns = IntStream.range(2, asked.length).map(i -> Integer.parseInt(asked[i])).toArray();
        RowType type = admin.getTableInfo(path).get().getRowType().project(columns);
        LakeSnapshot snapshot = admin.getReadableLakeSnapshot(path).get();
        System.out.println("snapshot " + snapshot.getSnapshotId());
        IcebergLakeSource source = new IcebergLakeSource(catalog, path);
        source.withProject(IntStream.of(columns).mapToObj(each -> new int[] {each}).toArray(int[][]::new));
        InternalRow.FieldGetter[] getters = InternalRow.createFieldGetters(type);
        for (IcebergSplit split : source.createPlanner(snapshot::getSnapshotId).plan()) {
            try (CloseableIterator<LogRecord> records = source.createRecordReader(() -> split).read()) {
                while (records.hasNext()) {
                    InternalRow row = records.next().getRow();
                    List<String> values = new ArrayList<>();
                    for (int i = 0; i < getters.length; i++) {
                        values.add(raw(getters[i].getFieldOrNull(row), type.getTypeAt(i).getTypeRoot()));
                    }
                    System.out.println("row " + String.join(" ", values));
                }
            }
        }
    }

    private static String raw(Object value, DataTypeRoot root) {
        if (value instanceof BinaryString text) {
            return hex(text.toBytes());
        }
        if (value instanceof byte[] bytes) {
            return hex(bytes);
        }
        if (value instanceof Decimal decimal) {
            return decimal.toBigDecimal().toPlainString();
        }
        if (value instanceof TimestampNtz time) {
            return micros(time.getMillisecond(), time.getNanoOfMillisecond());
        }
        if (value instanceof TimestampLtz time) {
            return micros(time.getEpochMillisecond(), time.getNanoOfMillisecond());
        }
        if (value instanceof Float number) {
            return String.valueOf(Double.doubleToRawLongBits(number.doubleValue()));
        }
        if (value instanceof Double number) {
            return String.valueOf(Double.doubleToRawLongBits(number));
        }
        if (root == DataTypeRoot.TIME_WITHOUT_TIME_ZONE && value instanceof Integer milliseconds) {
            return String.valueOf(milliseconds * 1000L);
        }
        return String.valueOf(value);
    }

    private static String micros(long milliseconds, int nanoseconds) {
        return String.valueOf(milliseconds * 1000 + nanoseconds / 1000);
    }

    private static String hex(byte[] bytes) {
        return "x" + HexFormat.of().formatHex(bytes);
    }
}
