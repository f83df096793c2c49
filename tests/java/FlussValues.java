import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericArray;
import org.apache.fluss.row.GenericMap;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalArray;
import org.apache.fluss.row.InternalMap;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.fluss.types.ArrayType;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypeChecks;
import org.apache.fluss.types.MapType;
import org.apache.fluss.types.RowType;

/**
 * Fluss's values from and to JSON, in the same form both ways; tests/fluss_java_client.py has the Python half.
 *
 * <p>Dates, times, timestamps and decimals are texts, bytes are hexadecimal, a map is a list of pairs, a row is a list. The
 * floating-point numbers that JSON does not have are texts: NaN, Infinity and -Infinity.
 */
final class FlussValues {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    /** Six digits at least, nine only where there are parts of a microsecond. */
    private static final DateTimeFormatter SECONDS =
            new DateTimeFormatterBuilder()
                    .appendPattern("uuuu-MM-dd'T'HH:mm:ss")
                    .appendFraction(ChronoField.NANO_OF_SECOND, 6, 9, true)
                    .toFormatter();

    private static final DateTimeFormatter TIME =
            new DateTimeFormatterBuilder()
                    .appendPattern("HH:mm:ss")
                    .appendFraction(ChronoField.NANO_OF_SECOND, 6, 9, true)
                    .toFormatter();

    private FlussValues() {}

    static GenericRow row(JsonNode values, List<DataType> types) {
        GenericRow row = new GenericRow(types.size());
        for (int index = 0; index < types.size(); index++) {
            row.setField(index, value(values.get(index), types.get(index)));
        }
        return row;
    }

    static ArrayNode json(InternalRow row, List<DataType> types) {
        ArrayNode values = JSON.arrayNode();
        for (int index = 0; index < types.size(); index++) {
            values.add(json(InternalRow.createFieldGetter(types.get(index), index).getFieldOrNull(row), types.get(index)));
        }
        return values;
    }

    static Object value(JsonNode json, DataType type) {
        if (json == null || json.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return json.booleanValue();
            case TINYINT:
                return (byte) json.intValue();
            case SMALLINT:
                return (short) json.intValue();
            case INTEGER:
                return json.intValue();
            case BIGINT:
                return json.longValue();
            case FLOAT:
                return json.isTextual() ? Float.parseFloat(json.textValue()) : (float) json.doubleValue();
            case DOUBLE:
                return json.isTextual() ? Double.parseDouble(json.textValue()) : json.doubleValue();
            case CHAR:
            case STRING:
                return BinaryString.fromString(json.textValue());
            case BINARY:
            case BYTES:
                return HexFormat.of().parseHex(json.textValue());
            case DECIMAL:
                return Decimal.fromBigDecimal(
                        new BigDecimal(json.textValue()), DataTypeChecks.getPrecision(type), DataTypeChecks.getScale(type));
            case DATE:
                return (int) LocalDate.parse(json.textValue()).toEpochDay();
            case TIME_WITHOUT_TIME_ZONE:
                return (int) (LocalTime.parse(json.textValue()).toNanoOfDay() / 1_000_000);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                return TimestampNtz.fromLocalDateTime(LocalDateTime.parse(json.textValue()));
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return TimestampLtz.fromInstant(DateTimeFormatter.ISO_OFFSET_DATE_TIME.parse(json.textValue(), Instant::from));
            case ARRAY:
                return array(json, ((ArrayType) type).getElementType());
            case MAP:
                Map<Object, Object> entries = new LinkedHashMap<>();
                for (JsonNode pair : json) {
                    entries.put(
                            value(pair.get(0), ((MapType) type).getKeyType()),
                            value(pair.get(1), ((MapType) type).getValueType()));
                }
                return new GenericMap(entries);
            case ROW:
                return row(json, ((RowType) type).getChildren());
            default:
                throw new IllegalArgumentException("no value of the type " + type);
        }
    }

    static JsonNode json(Object value, DataType type) {
        if (value == null) {
            return JSON.nullNode();
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return JSON.booleanNode((Boolean) value);
            case TINYINT:
            case SMALLINT:
            case INTEGER:
            case BIGINT:
                return JSON.numberNode(((Number) value).longValue());
            case FLOAT:
            case DOUBLE:
                double number = ((Number) value).doubleValue();
                return Double.isFinite(number) ? JSON.numberNode(number) : JSON.textNode(String.valueOf(number));
            case CHAR:
            case STRING:
                return JSON.textNode(value.toString());
            case BINARY:
            case BYTES:
                return JSON.textNode(HexFormat.of().formatHex((byte[]) value));
            case DECIMAL:
                return JSON.textNode(((Decimal) value).toBigDecimal().toPlainString());
            case DATE:
                return JSON.textNode(LocalDate.ofEpochDay((Integer) value).toString());
            case TIME_WITHOUT_TIME_ZONE:
                return JSON.textNode(TIME.format(LocalTime.ofNanoOfDay((Integer) value * 1_000_000L)));
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                return JSON.textNode(SECONDS.format(((TimestampNtz) value).toLocalDateTime()));
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                Instant instant = ((TimestampLtz) value).toInstant();
                return JSON.textNode(SECONDS.format(LocalDateTime.ofInstant(instant, ZoneOffset.UTC)) + "+00:00");
            case ARRAY:
                return list((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP:
                ArrayNode keys = list(((InternalMap) value).keyArray(), ((MapType) type).getKeyType());
                ArrayNode values = list(((InternalMap) value).valueArray(), ((MapType) type).getValueType());
                ArrayNode pairs = JSON.arrayNode();
                for (int index = 0; index < keys.size(); index++) {
                    pairs.add(JSON.arrayNode().add(keys.get(index)).add(values.get(index)));
                }
                return pairs;
            case ROW:
                return json((InternalRow) value, ((RowType) type).getChildren());
            default:
                throw new IllegalArgumentException("no JSON of the type " + type);
        }
    }

    private static GenericArray array(JsonNode json, DataType element) {
        Object[] values = new Object[json.size()];
        for (int index = 0; index < values.length; index++) {
            values[index] = value(json.get(index), element);
        }
        return new GenericArray(values);
    }

    private static ArrayNode list(InternalArray array, DataType element) {
        ArrayNode values = JSON.arrayNode();
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(element);
        for (int index = 0; index < array.size(); index++) {
            values.add(json(getter.getElementOrNull(array, index), element));
        }
        return values;
    }
}
