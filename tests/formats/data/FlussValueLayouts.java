import java.util.HexFormat;
import org.apache.fluss.record.BinaryValue;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.compacted.CompactedRow;
import org.apache.fluss.row.encode.CompactedRowEncoder;
import org.apache.fluss.row.encode.KvValueLayout;
import org.apache.fluss.row.encode.ValueEncoder;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypes;

/**
 * Makes fluss-1.0.0-value-layouts.txt with Fluss's own classes: for each layout and row a line with the layout's version,
 * the schema id, the tag, id and name of the row ("null" for none), and the stored value. With Java 17 and
 * org.apache.fluss:fluss-client:1.0.0 as $JAR:
 *
 * <pre>java --add-opens=java.base/java.nio=ALL-UNNAMED -cp $JAR FlussValueLayouts.java</pre>
 */
public class FlussValueLayouts {

    private static final short[] SCHEMA_IDS = {1, 1, 259, 1, 32767, 1};
    private static final long[] TAGS = {1_790_000_000_000L, 0, -1, Long.MAX_VALUE, Long.MIN_VALUE, 0x0102030405060708L};
    private static final long[] IDS = {300, -1, 0, Long.MAX_VALUE, 7, 8};
    private static final String[] NAMES = {"hé", null, "", "a name that is longer than a slot", "x", null};

    public static void main(String[] arguments) throws Exception {
        for (int version = 1; version <= 2; version++) {
            KvValueLayout layout = KvValueLayout.fromVersion(version);
            for (int row = 0; row < IDS.length; row++) {
                long tag = TAGS[row];
                ValueEncoder encoder =
                        layout.hasValueTag() ? ValueEncoder.forLayout(layout, ignored -> tag) : ValueEncoder.forLayout(layout);
                byte[] value = encoder.encodeValue(new BinaryValue(SCHEMA_IDS[row], row(IDS[row], NAMES[row])));
                System.out.printf(
                        "%d|%d|%d|%d|%s|%s%n",
                        version,
                        SCHEMA_IDS[row],
                        tag,
                        IDS[row],
                        NAMES[row],
                        HexFormat.of().formatHex(value));
            }
        }
    }

    private static CompactedRow row(long id, String name) {
        DataType[] types = {DataTypes.BIGINT().copy(false), DataTypes.STRING()};
        CompactedRowEncoder encoder = new CompactedRowEncoder(types);
        encoder.startNewRow();
        encoder.encodeField(0, id);
        encoder.encodeField(1, name == null ? null : BinaryString.fromString(name));
        return encoder.finishRow();
    }
}
