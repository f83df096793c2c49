import java.util.List;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.lake.iceberg.source.IcebergLakeSource;
import org.apache.fluss.lake.iceberg.source.IcebergSplit;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.record.LogRecord;
import org.apache.fluss.utils.CloseableIterator;

/**
 * Prints the values of an INT column in a snapshot of a lake table, which Fluss's own lake reader reads.
 *
 * <p>Arguments: database, table, snapshot id, the position of the column, then settings of the Iceberg catalog as
 * key=value.
 */
public final class SnapshotKeys {
    private SnapshotKeys() {}

    public static void main(String[] arguments) throws Exception {
        Configuration catalog = new Configuration();
        for (String setting : List.of(arguments).subList(4, arguments.length)) {
            String[] pair = setting.split("=", 2);
            catalog.setString(pair[0], pair[1]);
        }
        long snapshot = Long.parseLong(arguments[2]);
        IcebergLakeSource source = new IcebergLakeSource(catalog, TablePath.of(arguments[0], arguments[1]));
        source.withProject(new int[][] {{Integer.parseInt(arguments[3])}});
        for (IcebergSplit split : source.createPlanner(() -> snapshot).plan()) {
            try (CloseableIterator<LogRecord> records = source.createRecordReader(() -> split).read()) {
                while (records.hasNext()) {
                    System.out.println("row " + records.next().getRow().getInt(0));
                }
            }
        }
    }
}
