package fluss.tiering.iceberg;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.zip.InflaterInputStream;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.DeleteFiles;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.util.SnapshotUtil;

/**
 * The commit of a round: one transaction with one row delta for each piece.
 *
 * <p>The fence: each row delta validates that nobody else has added data files or delete files since the round's base.
 * Iceberg repeats this validation against the newest snapshot inside the catalog's compare-and-swap. A driver that was
 * paused anywhere before it therefore loses. Rewrites by a compaction are not a conflict, unless they replace a data
 * file that the commit removes or of which it deletes positions, or a delete file that it replaces. A check in the
 * driver before the commit would not be a fence, since Iceberg refreshes to the newest snapshot and tries again.
 *
 * <p>A request is JSON, compressed: a line with the numbers of files in each piece, and then a line for each file.
 */
public final class RoundCommit {

    private static final String ADDED_FILES_SIZE = "added-files-size";

    private final LakeTable table;
    private final Map<Integer, PartitionSpec> specs;
    private final String name = UUID.randomUUID().toString();
    private final List<String> manifests = new ArrayList<>();
    private JsonNode round;
    private Transaction transaction;
    private RuntimeException failure;

    /** Stage the commit. A failure is told by {@link #commit}. */
    RoundCommit(LakeTable table, byte[] request) {
        this.table = table;
        this.specs = table.specs();
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(
                new InflaterInputStream(new ByteArrayInputStream(request)), StandardCharsets.UTF_8))) {
            round = Json.read(lines.readLine());
            transaction = table.newTransaction();
            stage(lines);
        } catch (IOException error) {
            failure = new UncheckedIOException(error);
        } catch (RuntimeException error) {
            failure = error;
        }
    }

    /**
     * Commit what was staged.
     *
     * @return the snapshot that completes the commit; or "conflict" if somebody else has changed the table so that the
     *     commit was refused, "unprepared" if nothing was sent, or "unknown" if it may have landed
     */
    public String commit() {
        String failed;
        if (failure != null) {
            failed = failure instanceof ValidationException || isOutdated() ? "conflict" : "unprepared";
        } else {
            // Iceberg gives the snapshot this id in each try.
            long landed = newest();
            try {
                transaction.commitTransaction();
                return Json.object().put("snapshot", landed).toString();
            } catch (RuntimeException error) {
                failure = error;
            }
            // The table's operations have settled what became of the commit. An illegal argument is Iceberg's own word
            // about what it finds, before it sends anything.
            boolean refused = Failures.isConflict(failure)
                    || (failure instanceof IllegalArgumentException && isOutdated());
            failed = refused ? "conflict" : "unknown";
        }
        if (!failed.equals("unknown")) {
            // Iceberg deletes its own manifests.
            table.delete(manifests);
        }
        return Json.object().put("failed", failed).toString();
    }

    /** Return why the commit failed. */
    public Throwable failure() {
        return failure;
    }

    private void stage(BufferedReader lines) {
        Long base = Json.longOrNull(round.get("base"));
        if (!round.get("removed").isEmpty() && base != null) {
            remove(base);
        }
        JsonNode pieces = round.get("pieces");
        for (int number = 0; number < pieces.size(); number++) {
            JsonNode piece = pieces.get(number);
            boolean isLast = number == pieces.size() - 1;
            int appended = piece.get("appended").asInt();
            RowDelta delta = transaction.newRowDelta();
            if (base != null) {
                delta.validateFromSnapshot(base);
            }
            delta.conflictDetectionFilter(Expressions.alwaysTrue());
            delta.validateNoConflictingDataFiles();
            delta.validateNoConflictingDeleteFiles();
            if (number == 0 && !round.get("touched").isEmpty()) {
                // Later row deltas only see what was changed after the base of theirs, which is in this transaction.
                // Data files of the commit itself pass: Iceberg looks for those that were removed.
                delta.validateDataFilesExist(Json.texts(round.get("touched")));
            }
            give(lines, piece.get("deletes").asInt(), file -> delta.addDeletes((DeleteFile) file));
            int replaced = piece.get("replaced").asInt();
            if (replaced > 0) {
                give(lines, replaced, file -> delta.removeDeletes((DeleteFile) file));
                // Without this, two vectors of one data file would be committed, and then no engine reads the table.
                delta.validateDeletedFiles();
            }
            give(lines, piece.get("rows").asInt(), file -> delta.addRows((DataFile) file));
            complete(delta, isLast && appended == 0);
            if (appended > 0) {
                append(lines, appended, piece.get("appendedBytes").asText(), isLast);
            }
            base = newest();
        }
        keepBranch();
    }

    private void give(BufferedReader lines, int count, Consumer<ContentFile<?>> method) {
        for (int number = 0; number < count; number++) {
            try {
                method.accept(ContentFileParser.fromJson(Json.read(lines.readLine()), specs));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Return the snapshot of the update that was staged last. */
    private long newest() {
        return SnapshotUtil.latestSnapshot(transaction.table(), table.branch()).snapshotId();
    }

    /** Keep the branch although main stays behind, whatever `history.expire.max-ref-age-ms` says of tags. */
    private void keepBranch() {
        SnapshotRef ref = transaction.table().refs().get(table.branch());
        if (!table.branch().equals(SnapshotRef.MAIN_BRANCH) && ref != null && ref.maxRefAgeMs() == null) {
            transaction.manageSnapshots().setMaxRefAgeMs(table.branch(), Long.MAX_VALUE).commit();
        }
    }

    /** Earlier updates only carry the id of the commit, since the offsets are true after the last one. */
    private void complete(SnapshotUpdate<?> update, boolean isLast) {
        Json.textsByKey(round.get(isLast ? "summary" : "mark")).forEach(update::set);
        update.toBranch(table.branch());
        update.commit();
    }

    /**
     * Append data files after a row delta, by manifests, since Iceberg holds all files of a row delta in memory.
     *
     * <p>An append validates nothing: the row delta before it in the transaction is the fence for both. The deletes of
     * the row delta do not apply to the files, which come later.
     */
    private void append(BufferedReader lines, int count, String bytes, boolean isLast) {
        AppendFiles append = transaction.newFastAppend();
        int most = round.get("filesOfManifest").asInt();
        for (int left = count; left > 0; left -= most) {
            append.appendManifest(manifest(lines, Math.min(left, most)));
        }
        // A manifest does not say it.
        append.set(ADDED_FILES_SIZE, bytes);
        complete(append, isLast);
    }

    private ManifestFile manifest(BufferedReader lines, int count) {
        TableMetadata metadata = table.operations().current();
        String location = table.operations().metadataFileLocation(name + "-files-" + manifests.size() + ".avro");
        manifests.add(location);
        // Without the id of a snapshot, the files get that of the snapshot to which the manifest is appended.
        ManifestWriter<DataFile> writer = ManifestFiles.write(
                metadata.formatVersion(),
                specs.get(round.get("spec").asInt()),
                table.io().newOutputFile(location),
                (Long) null);
        try (writer) {
            give(lines, count, file -> writer.add((DataFile) file));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return writer.toManifestFile();
    }

    /** Remove the data files that the base has of some buckets. Its delete files then apply to nothing. */
    private void remove(long base) {
        Set<List<Object>> removed = new HashSet<>();
        for (JsonNode each : round.get("removed")) {
            List<Object> values = new ArrayList<>(Json.texts(each.get(1)));
            values.add(each.get(0).asInt());
            removed.add(values);
        }
        // Otherwise Iceberg passes over a file that a compaction has replaced since the base, and its rows would stay.
        DeleteFiles removal = transaction.newDelete().validateFilesExist();
        try (CloseableIterable<FileScanTask> tasks =
                table.newScan().useSnapshot(base).planFiles()) {
            for (FileScanTask task : tasks) {
                if (removed.contains(place(task.file().partition()))) {
                    removal.deleteFile(task.file());
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        complete(removal, false);
    }

    private static List<Object> place(StructLike partition) {
        List<Object> values = new ArrayList<>();
        for (int field = 0; field < partition.size() - 1; field++) {
            values.add(String.valueOf(partition.get(field, Object.class)));
        }
        values.add(partition.get(partition.size() - 1, Object.class));
        return values;
    }

    /**
     * Return whether the table is no longer the one for which the files were made.
     *
     * <p>The base was expired, which only happens after somebody else has committed on top of it; the table was set
     * back to a snapshot from before the base; or it has another format version, which wants deletion vectors.
     */
    private boolean isOutdated() {
        try {
            table.refresh();
        } catch (RuntimeException error) {
            failure.addSuppressed(error);
            return false;
        }
        if (table.operations().current().formatVersion() >= LakeTable.FIRST_WITH_VECTORS
                && round.get("positionFiles").asBoolean()) {
            return true;
        }
        Long base = Json.longOrNull(round.get("base"));
        Snapshot current = table.currentSnapshot();
        return base != null
                && (current == null || !SnapshotUtil.isAncestorOf(table, current.snapshotId(), base));
    }
}
