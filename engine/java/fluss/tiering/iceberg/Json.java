package fluss.tiering.iceberg;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.Deflater;
import java.util.zip.DeflaterInputStream;
import org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.JsonUtil;

/** The questions that Python asks, and the answers that it gets. */
final class Json {

    static final ObjectMapper MAPPER = JsonUtil.mapper();

    private Json() {}

    /** Writes an answer. */
    interface Writer {
        void write(JsonGenerator json) throws IOException;
    }

    static JsonNode read(String text) {
        try {
            return MAPPER.readTree(text);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static ArrayNode array() {
        return MAPPER.createArrayNode();
    }

    static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(each -> texts.add(each.asText()));
        return texts;
    }

    static Map<String, String> textsByKey(JsonNode object) {
        Map<String, String> texts = new LinkedHashMap<>();
        object.fieldNames().forEachRemaining(key -> texts.put(key, object.get(key).asText()));
        return texts;
    }

    static Long longOrNull(JsonNode value) {
        return value == null || value.isNull() ? null : value.asLong();
    }

    /** Return an answer: a text, or a {@link LongAnswer}. */
    static Object answer(JsonNode value) {
        return answer(json -> MAPPER.writeTree(json, value));
    }

    /** Return an answer: a text, or a {@link LongAnswer}. */
    static Object answer(Writer writer) {
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        try (JsonGenerator json = JsonUtil.factory().createGenerator(written)) {
            writer.write(json);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        byte[] text = written.toByteArray();
        return text.length <= LongAnswer.MAX_BYTES ? new String(text, StandardCharsets.UTF_8) : new LongAnswer(text);
    }

    /**
     * An answer that is asked for in parts.
     *
     * <p>The gateway sends an answer above 8 kB in several parts, and waits with the last one until the others are
     * acknowledged: 40 ms on Linux (Nagle's algorithm, and delayed acknowledgements).
     */
    public static final class LongAnswer {

        static final int MAX_BYTES = 7_000;

        /** What is a third longer as text. */
        private static final int PART_BYTES = 5_000;

        private final DeflaterInputStream deflated;

        LongAnswer(byte[] text) {
            deflated = new DeflaterInputStream(new ByteArrayInputStream(text), new Deflater(Deflater.BEST_SPEED));
        }

        /** Return the next part of the compressed answer; an empty one after the last. */
        public byte[] next() throws IOException {
            return deflated.readNBytes(PART_BYTES);
        }
    }
}
