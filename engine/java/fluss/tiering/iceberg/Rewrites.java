package fluss.tiering.iceberg;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PositionDeletesScanTask;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.actions.BinPackRewriteFilePlanner;
import org.apache.iceberg.actions.BinPackRewritePositionDeletePlanner;
import org.apache.iceberg.actions.RewriteFileGroup;
import org.apache.iceberg.actions.RewritePositionDeletesGroup;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;
import org.apache.iceberg.relocated.com.google.common.collect.Lists;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.spark.actions.RewriteDataFilesSparkAction;
import org.apache.iceberg.spark.actions.SparkActions;
import org.apache.spark.sql.SparkSession;

/**
 * Rewrites of data files, delete files and manifests: what Iceberg would rewrite, and its actions.
 *
 * <p>Iceberg's own planner says what its rewrite would do, so that a plan and the rewrite agree. The planner only reads
 * manifests, in the driver, and starts no Spark job.
 */
final class Rewrites {

    private Rewrites() {}

    /** Return Iceberg's groups of files that a rewrite with some options would replace. */
    private static List<RewriteFileGroup> planned(LakeTable table, JsonNode question) {
        Expression where = Partitions.exactly(table, question.get("partitions"));
        BinPackRewriteFilePlanner planner = new BinPackRewriteFilePlanner(table, where);
        planner.init(Json.textsByKey(question.get("options")));
        return listed(planner.plan().groups());
    }

    private static <T> List<T> listed(CloseableIterable<T> values) {
        try (values) {
            return Lists.newArrayList(values);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /**
     * Return the groups of files that a rewrite would replace, each as its partition, the number and the size of its
     * data files, about how many files would replace them, and how many delete files apply to them. Files of an older
     * partition spec are left out, since Iceberg has them all in one group, which has no partition.
     */
    static Object groups(LakeTable table, JsonNode question) {
        ArrayNode found = Json.array();
        for (RewriteFileGroup group : planned(table, question)) {
            if (group.fileScanTasks().stream().anyMatch(task -> isOlder(table, task.file()))) {
                continue;
            }
            ArrayNode one = found.addArray().add(Partitions.values(group.info().partition()));
            one.add(group.inputFileNum()).add(group.inputFilesSizeInBytes()).add(group.expectedOutputFiles());
            one.add(group.fileScanTasks().stream().mapToInt(task -> task.deletes().size()).sum());
        }
        return Json.answer(found);
    }

    private static boolean isOlder(LakeTable table, ContentFile<?> file) {
        return file.specId() != table.spec().specId();
    }

    /** The data files of groups that our own tasks rewrite, and the commit of what replaces them. */
    public static final class Plan {

        private final List<List<DataFile>> groups = new ArrayList<>();

        /** Choose groups, the first ones first, whose files together have at most a size. */
        Plan(LakeTable table, JsonNode question) {
            long left = question.get("maxBytes").isNull() ? Long.MAX_VALUE : question.get("maxBytes").asLong();
            for (RewriteFileGroup group : planned(table, question)) {
                if (group.inputFilesSizeInBytes() <= left) {
                    left -= group.inputFilesSizeInBytes();
                    groups.add(group.fileScanTasks().stream().map(FileScanTask::file).toList());
                }
            }
        }

        /** Return the data files of each group as location, size, first row id, and data sequence number. */
        public Object files() {
            ArrayNode found = Json.array();
            for (List<DataFile> group : groups) {
                ArrayNode files = found.addArray();
                for (DataFile file : group) {
                    ArrayNode one = files.addArray().add(file.location()).add(file.fileSizeInBytes());
                    one.add(file.firstRowId()).add(file.dataSequenceNumber());
                }
            }
            return Json.answer(found);
        }

        /**
         * Commit data files that have the rows of the old ones, in place of these.
         *
         * <p>The commit fails if somebody else has deleted rows of the old files since the base, or has replaced one of
         * the files, and the new files are then deleted. New rows and deletes of other files do not disturb it.
         *
         * @param question the base, the delete files that only delete rows of the old files, and the new files
         */
        public void commit(LakeTable table, String question) {
            JsonNode asked = Json.read(question);
            RewriteFiles update = table.newRewrite()
                    .validateFromSnapshot(asked.get("base").asLong());
            groups.forEach(group -> group.forEach(update::deleteFile));
            for (String each : Json.texts(asked.get("deletes"))) {
                update.deleteFile((DeleteFile) ContentFileParser.fromJson(Json.read(each), table.specs()));
            }
            List<String> written = new ArrayList<>();
            for (String each : Json.texts(asked.get("new"))) {
                DataFile file = (DataFile) ContentFileParser.fromJson(Json.read(each), table.specs());
                written.add(file.location());
                update.addFile(file);
            }
            table.deletingAfterConflict(written, update::commit);
        }
    }

    /** Rewrite data files by Spark in one commit, and return the numbers of files, bytes, new and delete files. */
    static Object dataFiles(SparkSession session, LakeTable table, JsonNode question) {
        var action = SparkActions.get(session).rewriteDataFiles(table);
        onBranch(action, table);
        action.options(Json.textsByKey(question.get("options")));
        if (!question.get("partitions").isNull()) {
            action.filter(Partitions.exactly(table, question.get("partitions")));
        }
        var result = action.execute();
        ArrayNode counts = Json.array().add(result.rewrittenDataFilesCount()).add(result.rewrittenBytesCount());
        return Json.answer(counts.add(result.addedDataFilesCount()).add(result.removedDeleteFilesCount()));
    }

    /** Name the branch of the table: later versions of Iceberg rewrite main without, and expect that it is there. */
    private static void onBranch(RewriteDataFilesSparkAction action, LakeTable table) {
        if (table.branch().equals(SnapshotRef.MAIN_BRANCH)) {
            return;
        }
        try {
            Method toBranch = RewriteDataFilesSparkAction.class.getMethod("toBranch", String.class);
            if (table.snapshot(table.branch()) == null) {
                long newest = table.currentSnapshot().snapshotId();
                table.manageSnapshots().createBranch(table.branch(), newest).commit();
            }
            toBranch.invoke(action, table.branch());
        } catch (NoSuchMethodException error) {
            // Earlier ones take the current snapshot and the rewrite that the table gives them.
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Merge the manifests of a table, and return how many there are fewer. */
    static int manifests(SparkSession session, LakeTable table) {
        var result = SparkActions.get(session).rewriteManifests(table).execute();
        return Iterables.size(result.rewrittenManifests()) - Iterables.size(result.addedManifests());
    }

    /** Rewrite position delete files of some partitions, or of all, and return how many there are fewer. */
    static int positionDeletes(SparkSession session, LakeTable table, JsonNode question) {
        var action = SparkActions.get(session)
                .rewritePositionDeletes(table)
                .options(Json.textsByKey(question.get("options")));
        if (!question.get("partitions").isNull()) {
            action = action.filter(Partitions.exactly(table, question.get("partitions")));
        }
        var result = action.execute();
        return result.rewrittenDeleteFilesCount() - result.addedDeleteFilesCount();
    }

    /**
     * Return each partition that has position delete files, with the sequence numbers of the commits that wrote these,
     * and of those that have added its data files. Files of an older partition spec are left out.
     */
    static Object partitionsWithPositionDeletes(LakeTable table, Map<String, String> options) {
        BinPackRewritePositionDeletePlanner planner = new BinPackRewritePositionDeletePlanner(table);
        planner.init(options);
        Map<ArrayNode, List<Long>> written = new LinkedHashMap<>();
        for (RewritePositionDeletesGroup group : listed(planner.plan().groups())) {
            for (PositionDeletesScanTask task : group.fileScanTasks()) {
                // The partition of a group has the fields of all specs.
                if (!isOlder(table, task.file())) {
                    written.computeIfAbsent(Partitions.values(task.file().partition()), key -> new ArrayList<>())
                            .add(task.file().dataSequenceNumber());
                }
            }
        }
        ArrayNode found = Json.array();
        if (written.isEmpty()) {
            return Json.answer(found);
        }
        Map<ArrayNode, List<Long>> added = new LinkedHashMap<>();
        JsonNode partitions = Json.array().addAll(written.keySet());
        try (CloseableIterable<FileScanTask> tasks =
                table.newScan().filter(Partitions.exactly(table, partitions)).planFiles()) {
            for (FileScanTask task : tasks) {
                if (isOlder(table, task.file())) {
                    continue;
                }
                Long number = task.file().fileSequenceNumber();
                added.computeIfAbsent(Partitions.values(task.file().partition()), key -> new ArrayList<>())
                        .add(number == null ? 0 : number);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        written.forEach((partition, numbers) -> found.addArray()
                .add(partition)
                .add(Json.MAPPER.valueToTree(numbers))
                .add(Json.MAPPER.valueToTree(added.getOrDefault(partition, List.of()))));
        return Json.answer(found);
    }
}
