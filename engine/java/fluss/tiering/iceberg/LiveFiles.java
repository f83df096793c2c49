package fluss.tiering.iceberg;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.SingleValueParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ContentFileUtil;

/** The live data files of a snapshot, each with its live delete files. */
final class LiveFiles {

    private final Map<Integer, PartitionSpec> specs;
    private final Map<String, Integer> numbers = new LinkedHashMap<>();
    private final List<DeleteFile> deletes = new ArrayList<>();

    private LiveFiles(Map<Integer, PartitionSpec> specs) {
        this.specs = specs;
    }

    /**
     * Return the data files as lists of location, partition values, rows, numbers of delete files, spec and format; and
     * the delete files by number, as their description and the data file that they are about alone, or as null if they
     * delete by key.
     */
    static Object of(Table table, long snapshot, Expression where) {
        LiveFiles found = new LiveFiles(table.specs());
        return Json.answer(json -> {
            json.writeStartObject();
            json.writeArrayFieldStart("files");
            try (CloseableIterable<FileScanTask> tasks =
                    table.newScan().useSnapshot(snapshot).filter(where).planFiles()) {
                for (FileScanTask task : tasks) {
                    found.write(task, json);
                }
            }
            json.writeEndArray();
            json.writeArrayFieldStart("deletes");
            for (DeleteFile file : found.deletes) {
                found.write(file, json);
            }
            json.writeEndArray();
            json.writeEndObject();
        });
    }

    private void write(FileScanTask task, JsonGenerator json) throws IOException {
        DataFile file = task.file();
        json.writeStartArray();
        json.writeString(file.location());
        writePartition(file, json);
        json.writeNumber(file.recordCount());
        json.writeStartArray();
        for (DeleteFile each : task.deletes()) {
            // A Puffin file may have the vectors of several data files, of which each is another delete file.
            String key = each.contentOffset() + " " + each.location();
            Integer number = numbers.get(key);
            if (number == null) {
                number = numbers.size();
                numbers.put(key, number);
                deletes.add(each);
            }
            json.writeNumber(number);
        }
        json.writeEndArray();
        json.writeNumber(file.specId());
        json.writeString(file.format().name());
        json.writeEndArray();
    }

    private void writePartition(ContentFile<?> file, JsonGenerator json) throws IOException {
        json.writeStartArray();
        List<Types.NestedField> fields = specs.get(file.specId()).partitionType().fields();
        for (int number = 0; number < fields.size(); number++) {
            Object value = file.partition().get(number, Object.class);
            if (value == null) {
                json.writeNull();
            } else {
                SingleValueParser.toJson(fields.get(number).type(), value, json);
            }
        }
        json.writeEndArray();
    }

    private void write(DeleteFile file, JsonGenerator json) throws IOException {
        if (file.content() == FileContent.EQUALITY_DELETES) {
            json.writeNull();
            return;
        }
        json.writeStartArray();
        json.writeString(ContentFileParser.toJson(file, specs.get(file.specId())));
        // The descriptions of older files do not say it, but their bounds do.
        json.writeString(ContentFileUtil.referencedDataFileLocation(file));
        json.writeEndArray();
    }

    /** Return whether a table has a data file in some rows, as of its current snapshot. */
    static boolean hasAny(Table table, Expression where) {
        try (CloseableIterable<FileScanTask> tasks =
                table.newScan().filter(where).planFiles()) {
            return tasks.iterator().hasNext();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
