package fluss.tiering.iceberg;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Moves main forward to a snapshot of the branch that rounds commit to.
 *
 * <p>The fence: main moves in one compare-and-swap of the table's metadata, and only if its newest snapshot is still the
 * one that was looked at. Iceberg's own {@code ManageSnapshots} would move it whatever somebody else has committed
 * meanwhile. That rounds commit to the branch at the same time is no conflict.
 */
final class Publication {

    private static final int TRIES = 6;

    private static final long FIRST_PAUSE_MS = 50;

    private Publication() {}

    /**
     * Publish a snapshot, and return the newest one of main then, that of main before, and the numbers of commits and rows in between; or
     * why it was refused: "nothing" if the table has no snapshot, "elsewhere" if the snapshot is not in the branch's
     * history, "moved" if somebody else has changed rows of main, or "tag" if the tag names another snapshot.
     *
     * @param question the snapshot, or null for the newest one; the tag that it gets, or null; and the keys of which a
     *     commit of a round has one in its summary
     */
    static Object publish(LakeTable table, JsonNode question) {
        Plan tried = null;
        RuntimeException failure = null;
        for (int attempt = 0; ; attempt++) {
            table.refresh();
            Plan plan = new Plan(table, question);
            if (plan.refusal != null || plan.isDone()) {
                return (plan.refusal != null || tried == null ? plan : tried).answer();
            }
            if (failure != null) {
                if (attempt == TRIES || !(failure instanceof CommitFailedException)) {
                    throw failure;
                }
                pause(FIRST_PAUSE_MS << attempt, failure);
            }
            tried = plan;
            failure = plan.commit();
        }
    }

    private static void pause(long milliseconds, RuntimeException failure) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw failure;
        }
    }

    /** What would be changed in the table as it is now. */
    private static final class Plan {
        private final LakeTable table;
        private final String tag;
        private final Snapshot before;
        private Snapshot published;
        private boolean isInMain;
        private int commits;
        private long rows;
        private String refusal;

        Plan(LakeTable table, JsonNode question) {
            this.table = table;
            this.tag = question.get("tag").textValue();
            this.before = table.published();
            Snapshot newest = table.currentSnapshot();
            Long asked = Json.longOrNull(question.get("snapshot"));
            published = asked == null ? newest : table.snapshot(asked);
            if (newest == null) {
                refusal = "nothing";
                return;
            }
            isInMain = published != null && comesFrom(before, published);
            if (!isInMain && (published == null || !comesFrom(newest, published))) {
                refusal = "elsewhere";
            } else if (isInMain ? asked == null && hasOtherRows() : !takeWhatIsNew(Json.texts(question.get("keys")))) {
                refusal = "moved";
            } else if (isTagTaken()) {
                refusal = "tag";
            }
        }

        private boolean comesFrom(Snapshot newest, Snapshot earlier) {
            History history = new History(table, newest, true);
            Snapshot each = null;
            // A snapshot has a greater sequence number than those before it.
            while (history.hasNext() && (each == null || each.sequenceNumber() > earlier.sequenceNumber())) {
                each = history.next();
            }
            return each != null && each.snapshotId() == earlier.snapshotId();
        }

        /** Return whether main has other rows than the branch that it contains: somebody has moved one of them. */
        private boolean hasOtherRows() {
            return !History.isOnlyRewrittenSince(table, before, published.snapshotId());
        }

        /** Count what comes after main, and return whether main has no other rows than those before. */
        private boolean takeWhatIsNew(List<String> keys) {
            // Whoever compacts main only writes files anew, whose rows the branch has, too.
            Set<Long> rewritten = new HashSet<>();
            History main = new History(table, before, true);
            Snapshot last = null;
            while (main.hasNext() && (last == null || DataOperations.REPLACE.equals(last.operation()))) {
                last = main.next();
                rewritten.add(last.snapshotId());
            }
            History branch = new History(table, published, true);
            while (branch.hasNext()) {
                Snapshot each = branch.next();
                if (rewritten.contains(each.snapshotId())) {
                    return true;
                }
                if (last != null && each.sequenceNumber() <= last.sequenceNumber()) {
                    return false;
                }
                commits += keys.stream().anyMatch(each.summary()::containsKey) ? 1 : 0;
                if (!DataOperations.REPLACE.equals(each.operation())) {
                    rows += Long.parseLong(each.summary().getOrDefault("added-records", "0"));
                }
            }
            return before == null;
        }

        private boolean isTagTaken() {
            SnapshotRef found = tag == null ? null : table.refs().get(tag);
            return found != null && (found.isBranch() || found.snapshotId() != published.snapshotId());
        }

        boolean isDone() {
            return isInMain && (tag == null || table.refs().containsKey(tag));
        }

        /** Commit, and return why it may not have landed, which the next look at the table shows. */
        RuntimeException commit() {
            TableMetadata base = table.operations().current();
            TableMetadata.Builder changed = TableMetadata.buildFrom(base);
            if (!isInMain) {
                changed.setBranchSnapshot(published.snapshotId(), SnapshotRef.MAIN_BRANCH);
            }
            if (tag != null) {
                changed.setRef(tag, SnapshotRef.tagBuilder(published.snapshotId()).build());
            }
            try {
                table.operations().commit(base, changed.build());
                return new IllegalStateException("the catalog says that main has moved, but the table does not show it");
            } catch (RuntimeException error) {
                return error;
            }
        }

        Object answer() {
            ObjectNode found = Json.object().put("refused", refusal).put("commits", commits).put("rows", rows);
            Snapshot newest = isInMain ? before : published;
            found.put("snapshot", newest == null ? null : newest.snapshotId());
            return Json.answer(found.put("main", before == null ? null : before.snapshotId()));
        }
    }
}
