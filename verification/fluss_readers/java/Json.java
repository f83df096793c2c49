import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;

/** Values of a row as JSON, so written that the test can write what it expects the same way. */
final class Json {
    private static final DateTimeFormatter MICROSECONDS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

    private Json() {}

    static String array(List<?> values) {
        return values.stream().map(Json::value).collect(Collectors.joining(",", "[", "]"));
    }

    static String value(Object value) {
        if (value instanceof Float number) {
            // As the double that it is, which has more digits than are needed to tell it from other floats.
            return String.valueOf(number.doubleValue());
        }
        if (value instanceof List<?> values) {
            return array(values);
        }
        if (value == null || value instanceof Boolean || value instanceof Number && !(value instanceof BigDecimal)) {
            return String.valueOf(value);
        }
        if (value instanceof BigDecimal decimal) {
            return quoted(decimal.toPlainString());
        }
        if (value instanceof byte[] bytes) {
            return quoted(HexFormat.of().formatHex(bytes));
        }
        if (value instanceof LocalDateTime time) {
            return quoted(MICROSECONDS.format(time));
        }
        if (value instanceof Instant instant) {
            return quoted(MICROSECONDS.format(LocalDateTime.ofInstant(instant, ZoneOffset.UTC)) + "+00:00");
        }
        if (value instanceof LocalTime time) {
            return quoted(DateTimeFormatter.ofPattern("HH:mm:ss.SSSSSS").format(time));
        }
        if (value instanceof LocalDate || value instanceof String) {
            return quoted(value.toString());
        }
        throw new IllegalArgumentException("no JSON for a " + value.getClass().getName());
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else if (each < ' ' || each > '~') {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        return out.append('"').toString();
    }
}
