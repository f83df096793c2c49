import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.fluss.compression.ArrowCompressionInfo;
import org.apache.fluss.compression.ArrowCompressionType;
import org.apache.fluss.memory.UnmanagedPagedOutputView;
import org.apache.fluss.record.ChangeType;
import org.apache.fluss.record.DefaultLogRecordBatch;
import org.apache.fluss.record.LogRecordBatchStatisticsCollector;
import org.apache.fluss.record.MemoryLogRecords;
import org.apache.fluss.record.MemoryLogRecordsArrowBuilder;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.row.arrow.ArrowWriterPool;
import org.apache.fluss.shaded.arrow.org.apache.arrow.memory.RootAllocator;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypes;
import org.apache.fluss.types.RowType;

/**
 * Makes the log batches with statistics of test_fluss_statistics.py with Fluss's own classes, and writes them into this
 * folder. With Java 17 and org.apache.fluss:fluss-client:1.0.0 as $JAR:
 *
 * <pre>java --add-opens=java.base/java.nio=ALL-UNNAMED -cp $JAR FlussStatisticsVectors.java</pre>
 */
public class FlussStatisticsVectors {
    private static final DataType[] TYPES = {
        DataTypes.INT().copy(false),
        DataTypes.BOOLEAN(),
        DataTypes.TINYINT(),
        DataTypes.SMALLINT(),
        DataTypes.BIGINT(),
        DataTypes.FLOAT(),
        DataTypes.DOUBLE(),
        DataTypes.STRING(),
        DataTypes.DATE(),
        DataTypes.TIME(3),
        DataTypes.TIMESTAMP(0),
        DataTypes.TIMESTAMP(3),
        DataTypes.TIMESTAMP(6),
        DataTypes.TIMESTAMP_LTZ(9),
        DataTypes.DECIMAL(5, 2),
        DataTypes.DECIMAL(20, 0),
        DataTypes.DECIMAL(38, 1),
        DataTypes.INT(),
        DataTypes.BYTES()
    };
    /** All columns but the last one, of whose type there are no statistics, in another order than the columns. */
    private static final int[] WITH_STATISTICS = {16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17};

    public static void main(String[] arguments) throws Exception {
        for (byte magic = 0; magic <= 2; magic++) {
            write("magic-" + magic, magic, magic == 0 ? null : WITH_STATISTICS);
        }
        write("magic-1-without-statistics", (byte) 1, null);
    }

    private static GenericRow[] rows() {
        return new GenericRow[] {
            GenericRow.of(
                    1,
                    false,
                    (byte) -128,
                    (short) -300,
                    Long.MIN_VALUE,
                    -0.0f,
                    -1.5,
                    BinaryString.fromString("h\u00e9 and more than seven bytes"),
                    -1,
                    0,
                    TimestampNtz.fromMillis(-1500),
                    TimestampNtz.fromMillis(-1),
                    TimestampNtz.fromMillis(-1, 2000),
                    TimestampLtz.fromEpochMillis(-1, 999999),
                    Decimal.fromBigDecimal(new BigDecimal("-1.23"), 5, 2),
                    Decimal.fromBigDecimal(new BigDecimal("-12345678901234567890"), 20, 0),
                    Decimal.fromBigDecimal(new BigDecimal("-12.9"), 38, 1),
                    null,
                    new byte[] {1}),
            GenericRow.of(
                    300,
                    true,
                    (byte) 127,
                    (short) 300,
                    Long.MAX_VALUE,
                    0.0f,
                    Double.NaN,
                    BinaryString.fromString("short"),
                    20_000,
                    86_399_999,
                    TimestampNtz.fromMillis(1500),
                    TimestampNtz.fromMillis(1),
                    TimestampNtz.fromMillis(1_700_000_000_000L, 999000),
                    TimestampLtz.fromEpochMillis(1, 1),
                    Decimal.fromBigDecimal(new BigDecimal("9.99"), 5, 2),
                    Decimal.fromBigDecimal(new BigDecimal("128"), 20, 0),
                    Decimal.fromBigDecimal(new BigDecimal("1234567890123456789012345678901234567.8"), 38, 1),
                    null,
                    null),
            GenericRow.of(2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)
        };
    }

    private static void write(String name, byte magic, int[] withStatistics) throws Exception {
        String[] names = new String[TYPES.length];
        Arrays.setAll(names, index -> "c" + index);
        RowType rowType = RowType.of(TYPES, names);
        ArrowWriterPool writers = new ArrowWriterPool(new RootAllocator(Long.MAX_VALUE));
        ArrowCompressionInfo zstd = new ArrowCompressionInfo(ArrowCompressionType.ZSTD, 3);
        MemoryLogRecordsArrowBuilder builder =
                MemoryLogRecordsArrowBuilder.builder(
                        40L,
                        magic,
                        1,
                        writers.getOrCreateWriter(1L, 1, Integer.MAX_VALUE, rowType, zstd),
                        new UnmanagedPagedOutputView(64 * 1024),
                        withStatistics == null ? null : new LogRecordBatchStatisticsCollector(rowType, withStatistics));
        for (GenericRow row : rows()) {
            builder.append(ChangeType.INSERT, row);
        }
        builder.close();
        MemoryLogRecords records = MemoryLogRecords.pointToBytesView(builder.build());
        ((DefaultLogRecordBatch) records.batches().iterator().next()).setCommitTimestamp(1234567L);
        byte[] bytes = new byte[records.sizeInBytes()];
        records.getMemorySegment().get(records.getPosition(), bytes);
        Files.write(Path.of("fluss-1.0.0-" + name + ".bin"), bytes);
    }
}
