import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.metadata.LakeSnapshot;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.lake.iceberg.source.IcebergLakeSource;
import org.apache.fluss.lake.iceberg.source.IcebergSplit;
import org.apache.fluss.lake.source.RecordReader;
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
 * Prints the lake snapshot of a table that the cluster calls readable, as Fluss's own lake reader reads it: a line for
 * each row. Arguments: bootstrap servers, database, table, then settings of the Iceberg catalog as key=value.
 */
public final class LakeRows {
    private LakeRows() {}

    public static void main(String[] arguments) throws Exception {
        TablePath path = TablePath.of(arguments[1], arguments[2]);
        Configuration client = new Configuration();
        client.setString("bootstrap.servers", arguments[0]);
        Configuration catalog = new Configuration();
        for (int i = 3; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            catalog.setString(setting[0], setting[1]);
        }
        try (Connection connection = ConnectionFactory.createConnection(client);
                Admin admin = connection.getAdmin()) {
            RowType type = admin.getTableInfo(path).get().getRowType();
            LakeSnapshot snapshot = admin.getReadableLakeSnapshot(path).get();
            System.out.println("snapshot " + snapshot.getSnapshotId() + " " + offsets(snapshot));
            IcebergLakeSource source = new IcebergLakeSource(catalog, path);
            int[][] columns = new int[type.getFieldCount()][];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = new int[] {i};
            }
            source.withProject(columns);
            for (IcebergSplit split : source.createPlanner(snapshot::getSnapshotId).plan()) {
                print(source.createRecordReader(() -> split), split, type);
            }
        }
    }

    /** Of each bucket: its partition's id or null, its number, and its log's offset. */
    private static String offsets(LakeSnapshot snapshot) {
        return Json.array(
                snapshot.getTableBucketsOffset().entrySet().stream()
                        .map(each -> Arrays.asList(
                                each.getKey().getPartitionId(), each.getKey().getBucket(), each.getValue()))
                        .toList());
    }

    private static void print(RecordReader reader, IcebergSplit split, RowType type) throws Exception {
        InternalRow.FieldGetter[] getters = InternalRow.createFieldGetters(type);
        try (CloseableIterator<LogRecord> records = reader.read()) {
            while (records.hasNext()) {
                LogRecord record = records.next();
                List<Object> values = new ArrayList<>();
                for (int i = 0; i < getters.length; i++) {
                    values.add(plain(getters[i].getFieldOrNull(record.getRow()), type.getTypeAt(i).getTypeRoot()));
                }
                System.out.println(
                        "row " + Json.array(List.of(
                                        split.bucket(), record.logOffset(), record.timestamp(), split.partition()))
                                + " " + Json.array(values));
            }
        }
    }

    private static Object plain(Object value, DataTypeRoot root) {
        if (root == DataTypeRoot.DATE && value instanceof Integer days) {
            return LocalDate.ofEpochDay(days);
        }
        if (root == DataTypeRoot.TIME_WITHOUT_TIME_ZONE && value instanceof Integer milliseconds) {
            return LocalTime.ofNanoOfDay(milliseconds * 1_000_000L);
        }
        if (value instanceof BinaryString text) {
            return text.toString();
        }
        if (value instanceof Decimal decimal) {
            return decimal.toBigDecimal();
        }
        if (value instanceof TimestampNtz time) {
            return time.toLocalDateTime();
        }
        if (value instanceof TimestampLtz time) {
            return time.toInstant();
        }
        return value;
    }
}
