package fluss.tiering.iceberg;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * A snapshot and those before it, also expired ones that older metadata files still describe.
 *
 * <p>An expiry that is not ours may remove the snapshot that the storage knows. The older metadata files then prove that
 * the current snapshot came from it.
 */
final class History implements Iterator<Snapshot> {

    private final LakeTable table;
    private final boolean withExpired;
    private final List<TableMetadata> older = new ArrayList<>();
    private List<TableMetadata.MetadataLogEntry> unread;
    private Snapshot next;

    History(LakeTable table, Snapshot newest, boolean withExpired) {
        this.table = table;
        this.withExpired = withExpired;
        this.next = newest;
    }

    /**
     * Return the commits of tiering, the newest first, down to the first one with one of some keys.
     *
     * @param question the snapshot at which to stop, or null for the whole history; the property of a summary that
     *     says who has committed, and its value; the keys; and whether the history is that of main
     */
    static Object commits(LakeTable table, JsonNode question) {
        Long known = Json.longOrNull(question.get("known"));
        List<String> keys = Json.texts(question.get("keys"));
        String user = question.get("userKey").asText(), value = question.get("user").asText();
        ArrayNode commits = Json.array();
        boolean reached = false, done = false;
        Snapshot newest = question.get("published").asBoolean() ? table.published() : table.currentSnapshot();
        Iterator<Snapshot> history = new History(table, newest, known != null);
        while (!(reached || done && known == null) && history.hasNext()) {
            Snapshot snapshot = history.next();
            reached = known != null && snapshot.snapshotId() == known;
            if (!reached && !done && value.equals(snapshot.summary().get(user))) {
                commits.add(described(snapshot));
                done = keys.isEmpty() || keys.stream().anyMatch(snapshot.summary()::containsKey);
            }
        }
        ObjectNode found = Json.object().put("reached", reached);
        found.set("commits", commits);
        return Json.answer(found);
    }

    /** Return whether all snapshots between an earlier one and a newer one have changed no row, nor the newer one. */
    static boolean isOnlyRewrittenSince(LakeTable table, Snapshot newer, long earlier) {
        History history = new History(table, newer, true);
        while (history.hasNext()) {
            Snapshot snapshot = history.next();
            if (snapshot.snapshotId() == earlier) {
                return true;
            }
            if (!DataOperations.REPLACE.equals(snapshot.operation())) {
                return false;
            }
        }
        return false;
    }

    /** Return the snapshots from the newest down to the known one; the whole history that is not expired without it. */
    static List<Long> downTo(LakeTable table, Long known) {
        List<Long> found = new ArrayList<>();
        History history = new History(table, table.currentSnapshot(), false);
        while (history.hasNext()) {
            found.add(history.next().snapshotId());
            if (found.get(found.size() - 1).equals(known)) {
                break;
            }
        }
        return found;
    }

    /** Return the id and the summary of a snapshot. */
    static ArrayNode described(Snapshot snapshot) {
        return Json.array().add(snapshot.snapshotId()).add(Json.MAPPER.valueToTree(snapshot.summary()));
    }

    @Override
    public boolean hasNext() {
        return next != null;
    }

    @Override
    public Snapshot next() {
        if (next == null) {
            throw new NoSuchElementException();
        }
        Snapshot snapshot = next;
        next = snapshot.parentId() == null ? null : snapshot(snapshot.parentId());
        return snapshot;
    }

    private Snapshot snapshot(long id) {
        Snapshot present = table.snapshot(id);
        return present != null || !withExpired ? present : expired(id);
    }

    /** Look for a snapshot in the metadata files that the table had before, the newest first. Each is read once. */
    private Snapshot expired(long id) {
        for (TableMetadata metadata : older) {
            if (metadata.snapshot(id) != null) {
                return metadata.snapshot(id);
            }
        }
        if (unread == null) {
            unread = new ArrayList<>(table.operations().current().previousFiles());
        }
        while (!unread.isEmpty()) {
            String location = unread.remove(unread.size() - 1).file();
            try {
                TableMetadata metadata = TableMetadataParser.read(table.io(), location);
                older.add(metadata);
                if (metadata.snapshot(id) != null) {
                    return metadata.snapshot(id);
                }
            } catch (RuntimeException error) {
                // A file that cannot be read proves nothing.
                continue;
            }
        }
        return null;
    }
}
