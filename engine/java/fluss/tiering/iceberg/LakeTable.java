package fluss.tiering.iceberg;

import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SortOrderParser;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.StorageCredential;
import org.apache.iceberg.io.SupportsStorageCredentials;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.SnapshotUtil;
import org.apache.spark.sql.SparkSession;

/**
 * A table whose commits are settled, and what Python asks about it or changes in it: one call for one question.
 *
 * <p>A question is JSON, and so is an answer, which may come in parts: see {@link Json.LongAnswer}.
 *
 * <p>If the table's rounds commit to a branch, the branch's newest snapshot is the current one here, or that of main
 * before there is a branch, and whatever is changed is changed on the branch. Only {@link Publication} moves main.
 */
public final class LakeTable extends BaseTable {

    private static final long serialVersionUID = 1L;

    /** The first format version with deletion vectors, and without new position delete files. */
    static final int FIRST_WITH_VECTORS = 3;

    private final String branch;

    /** Take over a table that was loaded, with the branch that its rounds commit to. */
    LakeTable(Table table, String branch) {
        super(
                new SettledTableOperations(((HasTableOperations) table).operations()),
                table.name(),
                ((BaseTable) table).reporter());
        this.branch = branch;
    }

    /** Return the branch that is read and changed. */
    String branch() {
        return branch;
    }

    /** Return the newest snapshot of main, which readers see; null if there is none. */
    Snapshot published() {
        return super.currentSnapshot();
    }

    /** Return the id of that snapshot. */
    public String publishedSnapshot() {
        return published() == null ? null : String.valueOf(published().snapshotId());
    }

    @Override
    public Snapshot currentSnapshot() {
        Snapshot newest = branch.equals(SnapshotRef.MAIN_BRANCH) ? null : snapshot(branch);
        return newest == null ? published() : newest;
    }

    // Iceberg's own actions commit by these, and Spark's, too.

    @Override
    public RewriteFiles newRewrite() {
        return super.newRewrite().toBranch(branch);
    }

    /** Return what the table is: its place, schema, partition specs, sort order, properties and current snapshot. */
    public Object describe() {
        TableMetadata metadata = operations().current();
        ObjectNode found = Json.object()
                .put("name", name())
                .put("location", location())
                .put("uuid", metadata.uuid())
                .put("formatVersion", metadata.formatVersion())
                .put("metadataFile", metadata.metadataFileLocation())
                .put("metadataFiles", metadata.previousFiles().size() + 1)
                .put("snapshots", metadata.snapshots().size())
                .put("otherSpecsInUse", hasFilesOfOtherSpecs())
                .put("commitsToTag", refs().containsKey(branch) && refs().get(branch).isTag());
        found.set("properties", Json.MAPPER.valueToTree(properties()));
        found.set("schema", Json.read(SchemaParser.toJson(schema())));
        found.set("sortOrder", Json.read(SortOrderParser.toJson(sortOrder())));
        ArrayNode specs = found.putArray("specs").add(Json.read(PartitionSpecParser.toJson(spec())));
        for (PartitionSpec each : specs().values()) {
            if (each.specId() != spec().specId()) {
                specs.add(Json.read(PartitionSpecParser.toJson(each)));
            }
        }
        if (currentSnapshot() != null) {
            found.put("snapshot", currentSnapshot().snapshotId());
            found.set("summary", Json.MAPPER.valueToTree(currentSnapshot().summary()));
        }
        return Json.answer(found);
    }

    private boolean hasFilesOfOtherSpecs() {
        if (specs().size() == 1 || currentSnapshot() == null) {
            return false;
        }
        return currentSnapshot().dataManifests(io()).stream()
                .anyMatch(each -> each.partitionSpecId() != spec().specId()
                        && (each.hasAddedFiles() || each.hasExistingFiles()));
    }

    /** Return the summary of a snapshot; null if the table does not have it. */
    public String summary(String snapshot) {
        Snapshot found = snapshot(Long.parseLong(snapshot));
        return found == null ? null : Json.MAPPER.valueToTree(found.summary()).toString();
    }

    /** Return the summary of the current snapshot; an empty one if there is none. */
    public String currentSummary() {
        Map<String, String> found = currentSnapshot() == null ? Map.of() : currentSnapshot().summary();
        return Json.MAPPER.valueToTree(found).toString();
    }

    /** Return a property of the table; null if it does not have it. */
    public String property(String key) {
        return properties().get(key);
    }

    /** Return the location of the table's metadata file. */
    public String metadataFile() {
        return operations().current().metadataFileLocation();
    }

    /** Return the sizes of the manifests of the current snapshot. */
    public Object manifestSizes() {
        ArrayNode sizes = Json.array();
        if (currentSnapshot() != null) {
            for (ManifestFile each : currentSnapshot().allManifests(io())) {
                sizes.add(each.length());
            }
        }
        return Json.answer(sizes);
    }

    /** Return the schema of a snapshot. */
    public Object schemaOf(String snapshot) {
        return Json.answer(Json.read(SchemaParser.toJson(SnapshotUtil.schemaFor(this, Long.parseLong(snapshot)))));
    }

    /** Change columns: see {@link ColumnChanges#make}. */
    public void changeColumns(String changes) {
        ColumnChanges.make(this, Json.read(changes));
    }

    /** Return commits of tiering: see {@link History#commits}. */
    public Object commits(String question) {
        return History.commits(this, Json.read(question));
    }

    /** Return whether all snapshots since an earlier one have changed no row. */
    public String isOnlyRewrittenSince(String snapshot) {
        return String.valueOf(History.isOnlyRewrittenSince(this, currentSnapshot(), Long.parseLong(snapshot)));
    }

    /** Return the live data files of a snapshot in the partitions with some keys: see {@link LiveFiles#of}. */
    public Object liveFiles(String question) {
        JsonNode asked = Json.read(question);
        JsonNode exact = asked.get("partitions");
        return LiveFiles.of(
                this,
                asked.get("snapshot").asLong(),
                exact != null ? Partitions.exactly(this, exact) : Partitions.withKeys(this, asked.get("keys"), asked.get("leading").asInt()));
    }

    /** Return for each place, a partition and its buckets, whether it may have rows. */
    public Object haveRows(String places) {
        ArrayNode found = Json.array();
        for (JsonNode each : Json.read(places)) {
            found.add(LiveFiles.hasAny(this, Partitions.withBuckets(this, each.get(0), each.get(1))));
        }
        return Json.answer(found);
    }

    /**
     * Return where the location provider places files.
     *
     * @param question the id of the partition spec, and a list of files with their values of its fields, or null for
     *     files whose place is not that of their partition, and their names
     */
    public Object locations(String question) {
        JsonNode asked = Json.read(question);
        PartitionSpec spec = specs().get(asked.get("spec").asInt());
        ArrayNode found = Json.array();
        for (JsonNode each : asked.get("files")) {
            String name = each.get(1).asText();
            // Iceberg itself has two slashes for the partition that an unpartitioned table has.
            if (each.get(0).isNull() || spec.isUnpartitioned()) {
                found.add(locationProvider().newDataLocation(name));
                continue;
            }
            // By values and not by a path: Iceberg finds no field in a path if a column has "=" or "/" in its name.
            // What else a file must have says nothing here.
            StructLike partition = DataFiles.builder(spec)
                    .withPartitionValues(Json.texts(each.get(0)))
                    .withPath(name)
                    .withFormat("parquet")
                    .withFileSizeInBytes(0)
                    .withRecordCount(0)
                    .build()
                    .partition();
            found.add(locationProvider().newDataLocation(spec, partition, name));
        }
        return Json.answer(found);
    }

    /**
     * Return how the store of a location is opened: the properties of the table's FileIO, the credentials that the
     * catalog vended for the longest prefix of the location, and settings of Hadoop if it opens the store.
     */
    public Object store(String question) {
        JsonNode asked = Json.read(question);
        FileIO io = io();
        ObjectNode found = Json.object();
        try {
            found.set("properties", Json.MAPPER.valueToTree(io.properties()));
        } catch (UnsupportedOperationException error) {
            // Iceberg's default for a FileIO that does not tell.
            found.putObject("properties");
        }
        found.set("credentials", Json.MAPPER.valueToTree(credentials(io, asked.get("location").asText())));
        if (io instanceof HadoopFileIO) {
            Configuration conf = ((HadoopFileIO) io).getConf();
            ObjectNode settings = found.putObject("hadoop");
            for (String key : Json.texts(asked.get("settings"))) {
                String value = conf.get(key);
                if (value != null && !value.isEmpty()) {
                    settings.put(key, value);
                }
            }
        }
        return Json.answer(found);
    }

    private static Map<String, String> credentials(FileIO io, String location) {
        if (!(io instanceof SupportsStorageCredentials)) {
            return Map.of();
        }
        StorageCredential longest = null;
        for (StorageCredential each : ((SupportsStorageCredentials) io).credentials()) {
            boolean isLonger = longest == null || each.prefix().length() > longest.prefix().length();
            longest = location.startsWith(each.prefix()) && isLonger ? each : longest;
        }
        return longest == null ? Map.of() : longest.config();
    }

    /** Return whether a metadata file belongs to this table, not to another one that had its name. */
    public String isOwnMetadata(String location) {
        String uuid = TableMetadataParser.read(io(), location).uuid();
        return String.valueOf(uuid.equals(operations().current().uuid()));
    }

    /** Return the content of a file. */
    public byte[] readFile(String location) throws IOException {
        try (SeekableInputStream stream = io().newInputFile(location).newStream()) {
            return stream.readAllBytes();
        }
    }

    /** Write a new file. */
    public void writeFile(String location, byte[] content) throws IOException {
        try (PositionOutputStream stream = io().newOutputFile(location).create()) {
            stream.write(content);
        }
    }

    /** Delete files that no snapshot refers to, and return those that could not be deleted, each with the reason. */
    public Object deleteFiles(String locations) {
        return Json.answer(delete(Json.texts(Json.read(locations))));
    }

    /** Delete files that no snapshot refers to, and return those that could not be deleted, each with the reason. */
    ArrayNode delete(List<String> locations) {
        ArrayNode kept = Json.array();
        for (String location : locations) {
            try {
                io().deleteFile(location);
            } catch (RuntimeException error) {
                kept.addArray().add(location).add(Failures.rootText(error));
            }
        }
        return kept;
    }

    /** Move main forward to a snapshot of the branch: see {@link Publication#publish}. */
    public Object publish(String question) {
        return Publication.publish(this, Json.read(question));
    }

    /** Stage the commit of a round. */
    public RoundCommit stageRound(byte[] request) {
        return new RoundCommit(this, request);
    }

    /** Return those of some snapshots that the table has, as it is now. */
    public Object present(String snapshots) {
        refresh();
        ArrayNode found = Json.array();
        for (JsonNode each : Json.read(snapshots)) {
            if (snapshot(each.asLong()) != null) {
                found.add(each.asLong());
            }
        }
        return Json.answer(found);
    }

    /** Return the snapshots that may be expired: see {@link Expiry#expirable}. */
    public Object expirable(String question) {
        return Expiry.expirable(this, Json.read(question));
    }

    /** Expire snapshots, and return how many files were deleted: see {@link Expiry#expire}. */
    public String expire(SparkSession session, String snapshots) throws IOException {
        Set<Long> expired = new HashSet<>();
        Json.read(snapshots).forEach(each -> expired.add(each.asLong()));
        return String.valueOf(Expiry.expire(session, this, expired));
    }

    /** Return files that no snapshot refers to: see {@link Expiry#unreferenced}. */
    public Object unreferenced(SparkSession session, String question) {
        return Expiry.unreferenced(session, this, Json.read(question));
    }

    /** Return the groups of files that a rewrite would replace: see {@link Rewrites#groups}. */
    public Object plannedGroups(String question) {
        return Rewrites.groups(this, Json.read(question));
    }

    /** Plan a rewrite by our own tasks. */
    public Rewrites.Plan planRewrite(String question) {
        return new Rewrites.Plan(this, Json.read(question));
    }

    /** Rewrite data files by Spark: see {@link Rewrites#dataFiles}. */
    public Object rewriteDataFiles(SparkSession session, String question) {
        return Rewrites.dataFiles(session, this, Json.read(question));
    }

    /** Merge manifests by Spark, and return how many there are fewer. */
    public String rewriteManifestsBy(SparkSession session) {
        return String.valueOf(Rewrites.manifests(session, this));
    }

    /** Rewrite position delete files by Spark: see {@link Rewrites#positionDeletes}. */
    public String rewritePositionDeletes(SparkSession session, String question) {
        return String.valueOf(Rewrites.positionDeletes(session, this, Json.read(question)));
    }

    /** Return partitions: see {@link Rewrites#partitionsWithPositionDeletes}. */
    public Object partitionsWithPositionDeletes(String options) {
        // Rewrites of data files leave no deletion vectors behind.
        if (operations().current().formatVersion() >= FIRST_WITH_VECTORS || specs().size() != 1) {
            return Json.answer(Json.array());
        }
        return Rewrites.partitionsWithPositionDeletes(this, Json.textsByKey(Json.read(options)));
    }

    /** Commit something, and delete what was written for it if it certainly did not land. */
    void deletingAfterConflict(List<String> written, Runnable commit) {
        try {
            commit.run();
        } catch (RuntimeException error) {
            if (Failures.isConflict(error)) {
                delete(written);
            }
            throw error;
        }
    }
}
