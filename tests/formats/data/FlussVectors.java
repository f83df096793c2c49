import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.fluss.bucketing.IcebergBucketingFunction;
import org.apache.fluss.compression.ArrowCompressionInfo;
import org.apache.fluss.compression.ArrowCompressionType;
import org.apache.fluss.memory.UnmanagedPagedOutputView;
import org.apache.fluss.record.ChangeType;
import org.apache.fluss.record.DefaultLogRecordBatch;
import org.apache.fluss.record.MemoryLogRecords;
import org.apache.fluss.record.MemoryLogRecordsArrowBuilder;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericArray;
import org.apache.fluss.row.GenericMap;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.row.arrow.ArrowWriterPool;
import org.apache.fluss.row.encode.CompactedKeyEncoder;
import org.apache.fluss.row.encode.CompactedRowEncoder;
import org.apache.fluss.row.encode.ValueEncoder;
import org.apache.fluss.row.encode.iceberg.IcebergKeyEncoder;
import org.apache.fluss.shaded.arrow.org.apache.arrow.memory.RootAllocator;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypes;
import org.apache.fluss.types.RowType;

/**
 * Makes the vectors of test_fluss_vectors.py with Fluss's own classes: prints value, key, buckets and an empty batch, and
 * writes the log batches into this folder. With Java 17 and org.apache.fluss:fluss-server:0.9.1-incubating as $JAR:
 *
 * <pre>java --add-opens=java.base/java.nio=ALL-UNNAMED -cp $JAR FlussVectors.java</pre>
 */
public class FlussVectors {

    private static final DataType[] TYPES = {
        DataTypes.INT().copy(false),
        DataTypes.INT(),
        DataTypes.BIGINT(),
        DataTypes.BOOLEAN(),
        DataTypes.DOUBLE(),
        DataTypes.STRING(),
        DataTypes.DATE(),
        DataTypes.TIMESTAMP(0),
        DataTypes.TIMESTAMP(3),
        DataTypes.TIMESTAMP(6),
        DataTypes.TIMESTAMP_LTZ(9),
        DataTypes.DECIMAL(5, 2),
        DataTypes.DECIMAL(20, 0),
        DataTypes.DECIMAL(38, 1),
        DataTypes.STRING()
    };
    private static final DataType[] FURTHER_TYPES = {
        DataTypes.TINYINT().copy(false),
        DataTypes.SMALLINT(),
        DataTypes.FLOAT(),
        DataTypes.CHAR(5),
        DataTypes.BINARY(3),
        DataTypes.BYTES(),
        DataTypes.TIME(0),
        DataTypes.TIME(3),
        DataTypes.TIME(6),
        DataTypes.TIME(9),
        DataTypes.BYTES()
    };
    private static final DataType[] NESTED_TYPES = {
        DataTypes.INT().copy(false),
        DataTypes.ARRAY(DataTypes.INT()),
        DataTypes.ARRAY(DataTypes.ARRAY(DataTypes.STRING().copy(false))),
        DataTypes.MAP(DataTypes.STRING().copy(false), DataTypes.ARRAY(DataTypes.BYTES())),
        DataTypes.ROW(
                DataTypes.FIELD("a", DataTypes.INT().copy(false)),
                DataTypes.FIELD(
                        "b",
                        DataTypes.ROW(
                                DataTypes.FIELD("x", DataTypes.TINYINT()),
                                DataTypes.FIELD("y", DataTypes.DOUBLE()),
                                DataTypes.FIELD("t", DataTypes.TIME(3)),
                                DataTypes.FIELD("z", DataTypes.TIMESTAMP_LTZ(9)))),
                DataTypes.FIELD("m", DataTypes.MAP(DataTypes.SMALLINT().copy(false), DataTypes.BOOLEAN()))),
        DataTypes.ARRAY(DataTypes.DECIMAL(5, 2)),
        DataTypes.ARRAY(DataTypes.DECIMAL(38, 1)),
        DataTypes.ARRAY(DataTypes.TIMESTAMP(6)),
        DataTypes.ARRAY(DataTypes.INT())
    };
    private static final DataType[] ELEMENT_TYPES = {
        DataTypes.INT().copy(false),
        DataTypes.ARRAY(DataTypes.ROW(DataTypes.FIELD("a", DataTypes.TINYINT()))),
        DataTypes.ARRAY(DataTypes.FLOAT()),
        DataTypes.ARRAY(DataTypes.DOUBLE()),
        DataTypes.ROW(DataTypes.FIELD("f", DataTypes.FLOAT()), DataTypes.FIELD("d", DataTypes.DOUBLE())),
        DataTypes.ARRAY(DataTypes.BOOLEAN()),
        DataTypes.ARRAY(DataTypes.STRING()),
        DataTypes.ARRAY(DataTypes.BINARY(3)),
        DataTypes.ARRAY(DataTypes.TIME(9)),
        DataTypes.ARRAY(DataTypes.SMALLINT()),
        DataTypes.ARRAY(DataTypes.TIMESTAMP(3)),
        DataTypes.ARRAY(DataTypes.TIMESTAMP_LTZ(9)),
        DataTypes.MAP(DataTypes.INT().copy(false), DataTypes.MAP(DataTypes.DATE().copy(false), DataTypes.BIGINT())),
        DataTypes.ARRAY(DataTypes.INT())
    };
    private static final int[] FURTHER_BUCKET_KEYS = {3, 4, 5, 6, 7, 8, 9};
    private static final int[] BUCKET_KEYS = {0, 1, 2, 5, 6, 7, 8, 9, 11, 12, 13};

    public static void main(String[] arguments) throws Exception {
        RowType rowType = printAll(TYPES, values(null), BUCKET_KEYS);
        print("batch without records", batch(rowType, ArrowCompressionInfo.NO_COMPRESSION, null));
        GenericRow full = GenericRow.of(values(BinaryString.fromString("x")));
        ArrowCompressionInfo zstd = new ArrowCompressionInfo(ArrowCompressionType.ZSTD, 3);
        ArrowCompressionInfo lz4 = new ArrowCompressionInfo(ArrowCompressionType.LZ4_FRAME, -1);
        write("none", batch(rowType, ArrowCompressionInfo.NO_COMPRESSION, full));
        write("lz4", batch(rowType, lz4, full));
        write("zstd", batch(rowType, zstd, full));

        RowType furtherType = printAll(FURTHER_TYPES, furtherValues(null), FURTHER_BUCKET_KEYS);
        GenericRow further = GenericRow.of(furtherValues(new byte[] {'x'}));
        write("further-types", batch(furtherType, ArrowCompressionInfo.NO_COMPRESSION, further));

        RowType nestedType = printAll(NESTED_TYPES, nestedValues(null), new int[0]);
        GenericRow nested = GenericRow.of(nestedValues(GenericArray.of(1)));
        write("nested-types", batch(nestedType, ArrowCompressionInfo.NO_COMPRESSION, nested));

        printAll(ELEMENT_TYPES, elementValues(), new int[0]);
    }

    private static Object[] elementValues() {
        float otherFloatNan = Float.intBitsToFloat(0xFFC00001);
        double otherDoubleNan = Double.longBitsToDouble(0xFFF8000000000001L);
        Object[] bits = new Object[34];
        Arrays.setAll(bits, index -> index == 32 ? null : (Object) (index % 3 == 0));
        return new Object[] {
            1,
            GenericArray.of(GenericRow.of((byte) 1), null, GenericRow.of((Object) null)),
            new GenericArray(new Object[] {otherFloatNan, -0.0f, null}),
            new GenericArray(new Object[] {otherDoubleNan, null, -0.0}),
            GenericRow.of(otherFloatNan, otherDoubleNan),
            new GenericArray(bits),
            GenericArray.of(
                    BinaryString.fromString(""),
                    null,
                    BinaryString.fromString("seven b"),
                    BinaryString.fromString("eight by")),
            GenericArray.of(new byte[] {0, 1, -1}, null),
            GenericArray.of(86_399_999, null),
            GenericArray.of((short) -300, null, (short) 1),
            GenericArray.of(null, TimestampNtz.fromMillis(-1)),
            GenericArray.of(null, TimestampLtz.fromEpochMillis(-1, 999999)),
            new GenericMap(Map.of(-1, new GenericMap(Map.of()))),
            GenericArray.of()
        };
    }

    private static Object[] nestedValues(GenericArray last) {
        Map<Object, Object> map = new LinkedHashMap<>();
        map.put(BinaryString.fromString("short"), GenericArray.of(new byte[] {1}, null));
        map.put(BinaryString.fromString("longer than seven"), null);
        GenericRow inner = GenericRow.of((byte) -2, null, 86_399_999, TimestampLtz.fromEpochMillis(-1, 999999));
        return new Object[] {
            7,
            GenericArray.of(1, null, -1),
            GenericArray.of(GenericArray.of(BinaryString.fromString("a"), BinaryString.fromString("b\u00e9 and more"))),
            new GenericMap(map),
            GenericRow.of(300, inner, new GenericMap(Map.of((short) -300, true))),
            GenericArray.of(
                    Decimal.fromBigDecimal(new BigDecimal("-1.23"), 5, 2), Decimal.fromBigDecimal(new BigDecimal("9.99"), 5, 2)),
            GenericArray.of(Decimal.fromBigDecimal(new BigDecimal("-12345678901234567890.1"), 38, 1), null),
            GenericArray.of(TimestampNtz.fromMillis(-1000), TimestampNtz.fromMillis(1, 2000)),
            last
        };
    }

    /** Value, key (without the last column, which is null) and buckets of a row. */
    private static RowType printAll(DataType[] types, Object[] values, int[] bucketKeys) throws Exception {
        String[] names = new String[types.length];
        Arrays.setAll(names, index -> "c" + index);
        RowType rowType = RowType.of(types, names);
        CompactedRowEncoder encoder = new CompactedRowEncoder(types);
        encoder.startNewRow();
        for (int index = 0; index < types.length; index++) {
            encoder.encodeField(index, values[index]);
        }
        print("value", ValueEncoder.encodeValue((short) 1, encoder.finishRow()));

        GenericRow row = GenericRow.of(values);
        // Nested types make no keys.
        int keyCount = types == NESTED_TYPES || types == ELEMENT_TYPES ? 1 : types.length - 1;
        List<String> keys = new ArrayList<>(Arrays.asList(names).subList(0, keyCount));
        print("key", CompactedKeyEncoder.createKeyEncoder(rowType, keys).encodeKey(row));
        for (int index : bucketKeys) {
            byte[] key = new IcebergKeyEncoder(rowType, List.of(names[index])).encodeKey(row);
            System.out.println("bucket of " + names[index] + ": " + new IcebergBucketingFunction().bucketing(key, 1009));
        }
        return rowType;
    }

    private static Object[] furtherValues(byte[] last) {
        int time = 86_399_999;
        return new Object[] {
            (byte) -2,
            (short) -300,
            -1.5f,
            BinaryString.fromString("h\u00e9"),
            new byte[] {0, 1, -1},
            new byte[] {-128, 127},
            time - 999,
            time,
            time,
            time,
            last
        };
    }

    private static Object[] values(BinaryString last) {
        return new Object[] {
            300,
            -1,
            -1L,
            true,
            1.5,
            BinaryString.fromString("h\u00e9"),
            1,
            TimestampNtz.fromMillis(-1000),
            TimestampNtz.fromMillis(1),
            TimestampNtz.fromMillis(1, 2000),
            TimestampLtz.fromEpochMillis(-1, 999999),
            Decimal.fromBigDecimal(new BigDecimal("-1.23"), 5, 2),
            Decimal.fromBigDecimal(new BigDecimal("128"), 20, 0),
            Decimal.fromBigDecimal(new BigDecimal("-12.9"), 38, 1),
            last
        };
    }

    private static byte[] batch(RowType rowType, ArrowCompressionInfo compression, GenericRow row) throws Exception {
        ArrowWriterPool writers = new ArrowWriterPool(new RootAllocator(Long.MAX_VALUE));
        MemoryLogRecordsArrowBuilder builder =
                MemoryLogRecordsArrowBuilder.builder(
                        40L,
                        (byte) 0,
                        1,
                        writers.getOrCreateWriter(1L, 1, Integer.MAX_VALUE, rowType, compression),
                        new UnmanagedPagedOutputView(64 * 1024));
        if (row != null) {
            builder.append(ChangeType.INSERT, row);
            builder.append(ChangeType.UPDATE_BEFORE, row);
            builder.append(ChangeType.UPDATE_AFTER, row);
        }
        builder.close();
        MemoryLogRecords records = MemoryLogRecords.pointToBytesView(builder.build());
        ((DefaultLogRecordBatch) records.batches().iterator().next()).setCommitTimestamp(1234567L);
        byte[] bytes = new byte[records.sizeInBytes()];
        records.getMemorySegment().get(records.getPosition(), bytes);
        return bytes;
    }

    private static void print(String what, byte[] bytes) {
        System.out.println(what + ": " + HexFormat.of().withUpperCase().formatHex(bytes));
    }

    private static void write(String name, byte[] bytes) throws Exception {
        Files.write(Path.of("fluss-0.9.1-" + name + ".bin"), bytes);
    }
}
