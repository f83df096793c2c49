package fluss.tiering.iceberg;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RewriteManifests;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;

/** Mends what metadata says of files, and replaces files, without changing a row. */
final class Repairs {

    private Repairs() {}

    /** A live file in a manifest. Iceberg tells the snapshot that added it nowhere but in its own classes. */
    private static final class Entry {
        private final Object entry;

        Entry(Object entry) {
            this.entry = entry;
        }

        ContentFile<?> file() {
            return (ContentFile<?>) get("file");
        }

        /** Return the snapshot that added the file. */
        long snapshot() {
            return (Long) get("snapshotId");
        }

        /** Return the number by which deletes apply. */
        long dataSequenceNumber() {
            return (Long) get("dataSequenceNumber");
        }

        /** Return the number of the snapshot that added the file. */
        long fileSequenceNumber() {
            return (Long) get("fileSequenceNumber");
        }

        private Object get(String name) {
            try {
                Method method = Class.forName("org.apache.iceberg.ManifestEntry", false, ManifestFiles.class.getClassLoader())
                        .getDeclaredMethod(name);
                method.setAccessible(true);
                return method.invoke(entry);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** What is done with a live file. */
    private interface Visitor {
        void visit(Entry entry) throws IOException;
    }

    private static void visit(LakeTable table, ManifestFile manifest, Visitor visitor) {
        try (ManifestReader<? extends ContentFile<?>> reader = MetadataFiles.open(table, manifest)) {
            Method method = ManifestReader.class.getDeclaredMethod("liveEntries");
            method.setAccessible(true);
            try (CloseableIterable<?> entries = (CloseableIterable<?>) method.invoke(reader)) {
                for (Object each : entries) {
                    visitor.visit(new Entry(each));
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (ReflectiveOperationException error) {
            throw error.getCause() instanceof RuntimeException
                    ? (RuntimeException) error.getCause()
                    : new IllegalStateException(error);
        }
    }

    private static List<ManifestFile> manifests(LakeTable table) {
        return table.currentSnapshot() == null
                ? List.of()
                : table.currentSnapshot().allManifests(table.io());
    }

    /**
     * Return the live files of the current snapshot, each with its content, format, size, rows, bounds by field in
     * hexadecimal, snapshot, and sequence numbers. They are read here and not by Spark's metadata tables, since Spark
     * opens no table with a TIME column.
     */
    static Object files(LakeTable table) {
        return Json.answer(json -> {
            json.writeStartArray();
            for (ManifestFile manifest : manifests(table)) {
                visit(table, manifest, entry -> {
                    ContentFile<?> file = entry.file();
                    ArrayNode one = Json.array().add(file.location()).add(file.content().name());
                    one.add(file.format().name()).add(file.fileSizeInBytes()).add(file.recordCount());
                    one.add(bounds(file.lowerBounds())).add(bounds(file.upperBounds()));
                    one.add(entry.snapshot()).add(entry.dataSequenceNumber()).add(entry.fileSequenceNumber());
                    Json.MAPPER.writeTree(json, one);
                });
            }
            json.writeEndArray();
        });
    }

    private static ObjectNode bounds(Map<Integer, ByteBuffer> bounds) {
        ObjectNode found = Json.object();
        if (bounds != null) {
            bounds.forEach((field, value) -> {
                byte[] bytes = new byte[value.remaining()];
                value.duplicate().get(bytes);
                found.put(String.valueOf(field), HexFormat.of().formatHex(bytes));
            });
        }
        return found;
    }

    /**
     * Commit other bounds of files, without touching the files themselves, and return how many files got them.
     *
     * <p>A manifest that lists such a file is replaced by a copy in one commit of Iceberg's {@link RewriteManifests}.
     * In the copy each file keeps its sequence numbers and the snapshot that added it. The deletes of other commits
     * therefore apply as before. Removing and adding the file would give it a new sequence number, and a later expiry
     * could delete it, since a manifest would list it as removed.
     *
     * <p>The fence of a round does not see this commit, as it does not see compactions. If a round or a compaction
     * replaces one of the manifests at the same time, Iceberg refuses the commit.
     *
     * @param right the lower and the upper bound, in hexadecimal or null, by field, by the location of the file
     */
    static int rewriteBounds(LakeTable table, JsonNode right) {
        RewriteManifests update = table.rewriteManifests();
        List<String> written = new ArrayList<>();
        int[] count = {0};
        table.deletingAfterConflict(written, () -> {
            for (ManifestFile manifest : manifests(table)) {
                int before = count[0];
                visit(table, manifest, entry -> count[0] += right.has(entry.file().location()) ? 1 : 0);
                if (count[0] > before) {
                    update.deleteManifest(manifest).addManifest(copy(table, manifest, right, written));
                }
            }
            if (count[0] > 0) {
                update.commit();
            }
        });
        return count[0];
    }

    private static ManifestFile copy(LakeTable table, ManifestFile manifest, JsonNode right, List<String> written) {
        String location = table.operations().metadataFileLocation(UUID.randomUUID() + "-m0.avro");
        written.add(location);
        OutputFile output = table.io().newOutputFile(location);
        int version = table.operations().current().formatVersion();
        PartitionSpec spec = table.specs().get(manifest.partitionSpecId());
        if (manifest.content() == ManifestContent.DELETES) {
            ManifestWriter<DeleteFile> writer = ManifestFiles.writeDeleteManifest(version, spec, output, null);
            return copy(table, manifest, writer, DeleteFile.class, right);
        }
        ManifestWriter<DataFile> writer = ManifestFiles.write(version, spec, output, (Long) null);
        return copy(table, manifest, writer, DataFile.class, right);
    }

    private static <F extends ContentFile<F>> ManifestFile copy(
            LakeTable table, ManifestFile manifest, ManifestWriter<F> writer, Class<F> kind, JsonNode right) {
        try (writer) {
            visit(table, manifest, entry -> {
                ContentFile<?> file = entry.file();
                JsonNode bounds = right.get(file.location());
                writer.existing(
                        kind.cast(bounds == null ? file : withBounds(table, file, bounds)),
                        entry.snapshot(),
                        entry.dataSequenceNumber(),
                        entry.fileSequenceNumber());
            });
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return writer.toManifestFile();
    }

    private static ContentFile<?> withBounds(LakeTable table, ContentFile<?> file, JsonNode right) {
        ObjectNode described = described(table, file);
        String[] keys = {"lower-bounds", "upper-bounds"};
        for (int side = 0; side < keys.length; side++) {
            Map<Integer, String> bounds = new LinkedHashMap<>();
            JsonNode present = described.path(keys[side]);
            for (int number = 0; number < present.path("keys").size(); number++) {
                bounds.put(
                        present.get("keys").get(number).asInt(),
                        present.get("values").get(number).asText());
            }
            for (Map.Entry<String, JsonNode> each : entries(right).entrySet()) {
                JsonNode bound = each.getValue().get(side);
                int field = Integer.parseInt(each.getKey());
                if (bound.isNull()) {
                    bounds.remove(field);
                } else {
                    bounds.put(field, bound.asText());
                }
            }
            ObjectNode changed = described.putObject(keys[side]);
            changed.set("keys", Json.MAPPER.valueToTree(bounds.keySet()));
            changed.set("values", Json.MAPPER.valueToTree(bounds.values()));
        }
        return ContentFileParser.fromJson(described, table.specs());
    }

    private static Map<String, JsonNode> entries(JsonNode object) {
        Map<String, JsonNode> found = new LinkedHashMap<>();
        object.fieldNames().forEachRemaining(key -> found.put(key, object.get(key)));
        return found;
    }

    private static ObjectNode described(LakeTable table, ContentFile<?> file) {
        return (ObjectNode) Json.read(ContentFileParser.toJson(file, table.specs().get(file.specId())));
    }

    /**
     * Commit new files in place of others with the same rows, or change nothing.
     *
     * <p>The new file takes the place of the old one and its data sequence number, in one transaction. The deletes of
     * other commits therefore apply to it as they did to the old one, also those of a round that commits in the
     * meantime. Deletes by position do not, since they name the old file, so that they are a conflict: the commit then
     * fails, and the new files are deleted.
     *
     * @param question the base, and what differs in the description of each new file, by the location of the old one
     */
    static void replaceFiles(LakeTable table, JsonNode question) {
        Map<String, JsonNode> changes = entries(question.get("files"));
        List<String> written = new ArrayList<>();
        changes.values().forEach(each -> written.add(each.get("file-path").asText()));
        table.deletingAfterConflict(written, () -> {
            Map<Long, Map<ContentFile<?>, ContentFile<?>>> bySequence = new TreeMap<>();
            for (ManifestFile manifest : manifests(table)) {
                visit(table, manifest, entry -> {
                    JsonNode change = changes.get(entry.file().location());
                    if (change != null) {
                        ContentFile<?> old = (ContentFile<?>) entry.file().copy();
                        ObjectNode described = described(table, old);
                        entries(change).forEach(described::set);
                        described.remove("first-row-id");
                        bySequence
                                .computeIfAbsent(entry.dataSequenceNumber(), key -> new HashMap<>())
                                .put(old, ContentFileParser.fromJson(described, table.specs()));
                    }
                });
            }
            // A transaction refreshes the table, whose present snapshot may then be a later one than the base.
            Transaction transaction = table.newTransaction();
            bySequence.forEach((number, replaced) -> {
                RewriteFiles rewrite = transaction.newRewrite();
                rewrite.validateFromSnapshot(question.get("base").asLong());
                replaced.forEach((old, file) -> {
                    if (old.content() == FileContent.DATA) {
                        rewrite.deleteFile((DataFile) old).addFile((DataFile) file);
                    } else {
                        rewrite.deleteFile((DeleteFile) old).addFile((DeleteFile) file, number);
                    }
                });
                rewrite.dataSequenceNumber(number).toBranch(table.branch()).commit();
            });
            transaction.commitTransaction();
        });
    }
}
