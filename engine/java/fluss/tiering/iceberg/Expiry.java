package fluss.tiering.iceberg;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.spark.actions.SparkActions;
import org.apache.iceberg.util.SnapshotUtil;
import org.apache.spark.sql.SparkSession;

/** Expires snapshots, and finds files that no snapshot refers to. */
final class Expiry {

    private Expiry() {}

    /**
     * Return the snapshots that are old enough: those that may go, the oldest first, and the number of those that are
     * needed, from the newest down to the known one; and a needed one that Iceberg would expire with them.
     */
    static Object expirable(LakeTable table, JsonNode question) {
        ExpireSnapshots rule = table.expireSnapshots();
        if (!question.get("olderThanMs").isNull()) {
            rule = rule.expireOlderThan(question.get("olderThanMs").asLong());
        }
        if (!question.get("retainLast").isNull()) {
            rule = rule.retainLast(question.get("retainLast").asInt());
        }
        Set<Long> old = ids(rule.apply());
        Set<Long> needed = new HashSet<>(History.downTo(table, Json.longOrNull(question.get("known"))));
        ExpireSnapshots exact = table.expireSnapshots().expireOlderThan(0);
        ObjectNode found = Json.object();
        var free = found.putArray("free");
        int all = 0;
        for (Snapshot each : table.snapshots()) {
            all++;
            if (old.contains(each.snapshotId()) && !needed.contains(each.snapshotId())) {
                free.add(each.snapshotId());
                exact = exact.expireSnapshotId(each.snapshotId());
            }
        }
        ids(exact.apply()).stream().filter(needed::contains).min(Long::compare).ifPresent(id -> found.put("lost", id));
        return Json.answer(found.put("needed", old.size() - free.size()).put("all", all));
    }

    private static Set<Long> ids(List<Snapshot> snapshots) {
        return snapshots.stream().map(Snapshot::snapshotId).collect(Collectors.toSet());
    }

    /**
     * Expire exactly these snapshots, delete the files that only they need, and return how many were deleted.
     *
     * <p>Nothing is expired if the metadata of the current snapshot cannot be read, since the older ones may then be
     * all that readers have. Whether its data files are there is not looked at.
     */
    static long expire(SparkSession session, LakeTable table, Set<Long> expired) throws IOException {
        readCurrent(table);
        List<String> deleted = expireOldest(table, expired);
        if (deleted != null) {
            return deleted.size();
        }
        // By age alone, Iceberg would expire others, too. Without the option, the driver would hold the names of all
        // files that it deletes.
        var action = SparkActions.get(session)
                .expireSnapshots(table)
                .expireOlderThan(0)
                .option("stream-results", "true");
        for (long snapshot : expired) {
            action = action.expireSnapshotId(snapshot);
        }
        var result = action.execute();
        return result.deletedDataFilesCount()
                + result.deletedEqualityDeleteFilesCount()
                + result.deletedPositionDeleteFilesCount()
                + result.deletedManifestsCount()
                + result.deletedManifestListsCount()
                + result.deletedStatisticsFilesCount();
    }

    /** Read the metadata of the current snapshot to its end, anew and not from what Iceberg remembers. */
    private static void readCurrent(LakeTable table) throws IOException {
        TableMetadata metadata = TableMetadataParser.read(table.io(), table.metadataFile());
        Snapshot current = SnapshotUtil.latestSnapshot(metadata, table.branch());
        if (current == null) {
            // The branch was dropped before anything was published.
            return;
        }
        for (ManifestFile each : current.allManifests(table.io())) {
            try (CloseableIterable<?> files = each.content() == ManifestContent.DELETES
                    ? ManifestFiles.readDeleteManifest(each, table.io(), table.specs())
                    : ManifestFiles.read(each, table.io(), table.specs())) {
                Iterables.size(files);
            }
        }
    }

    /**
     * Expire the oldest snapshots, and return the files that were deleted; null if these are not just the oldest ones.
     *
     * <p>Iceberg then reads the lists of manifests, and of the manifests those in which the expired snapshots have
     * removed files. Spark's action compares the names of all files of all snapshots, which takes many times as long
     * for a table with thousands of them. Iceberg would leave the files that the oldest snapshot left has removed until
     * that one expires, although nothing refers to them any more. They are deleted here.
     */
    private static List<String> expireOldest(LakeTable table, Set<Long> expired) {
        if (table.operations().current().formatVersion() >= LakeTable.FIRST_WITH_VECTORS) {
            // A Puffin file may hold vectors of several data files, and Iceberg would delete it with the first of them.
            return null;
        }
        List<Long> ancestors = SnapshotUtil.currentAncestorIds(table);
        if (ancestors.size() != table.operations().current().snapshots().size()
                || !Set.copyOf(ancestors.subList(ancestors.size() - expired.size(), ancestors.size()))
                        .equals(expired)) {
            // A tag or a branch keeps an older one, with the files that a later one has removed.
            return null;
        }
        long newest = expired.stream()
                .mapToLong(id -> table.snapshot(id).timestampMillis())
                .max()
                .getAsLong();
        ExpireSnapshots rule = table.expireSnapshots().expireOlderThan(newest + 1).retainLast(1);
        if (!ids(rule.apply()).equals(expired)) {
            return null;
        }
        return expireOldest(table, rule, table.snapshot(ancestors.get(ancestors.size() - 1 - expired.size())));
    }

    /** Expire all before the oldest snapshot that is left. */
    static List<String> expireOldest(LakeTable table, ExpireSnapshots rule, Snapshot left) {
        List<Long> ancestors = SnapshotUtil.currentAncestorIds(table);
        // Iceberg goes on if it cannot read the manifests of a snapshot that is left, and would delete them. A manifest
        // that an expired snapshot and a later one have is also in the oldest one that is left.
        Set<String> needed =
                left.allManifests(table.io()).stream().map(ManifestFile::path).collect(Collectors.toSet());
        List<String> removed = removedBy(table, left);
        try {
            // What it has removed was deleted when it became the oldest.
            needed.addAll(removedBy(table, table.snapshot(ancestors.get(ancestors.size() - 1))));
        } catch (RuntimeException error) {
            // Nobody needs the metadata of a snapshot that expires.
        }
        // It only notes the names of the files, so that Iceberg deletes nothing yet.
        List<String> names = Collections.synchronizedList(new ArrayList<>());
        rule.deleteWith(names::add).commit();
        List<String> unneeded =
                Stream.concat(names.stream().filter(name -> !needed.contains(name)), removed.stream()).toList();
        CatalogUtil.deleteFiles(table.io(), unneeded, "expired", true);
        return unneeded;
    }

    /** Return the data files and delete files that a snapshot has removed. */
    @SuppressWarnings("deprecation") // Iceberg 1.10 has no other way.
    private static List<String> removedBy(LakeTable table, Snapshot snapshot) {
        List<String> found = new ArrayList<>();
        for (ContentFile<?> each : Iterables.concat(
                snapshot.removedDataFiles(table.io()), snapshot.removedDeleteFiles(table.io()))) {
            found.add(each.location());
        }
        return found;
    }

    /**
     * Return the files of a folder that are older than a time and that no snapshot of the table refers to, in order.
     *
     * @param question the folder, the time, and whether the folder is only reached by listing its prefix, as in object
     *     stores for which Hadoop has no file system; in folders Hadoop would start `ls` for each file, to find out its
     *     rights, and would fail if the file is deleted before that
     */
    static Object unreferenced(SparkSession session, LakeTable table, JsonNode question) {
        var result = SparkActions.get(session)
                .deleteOrphanFiles(table)
                .location(question.get("folder").asText())
                .olderThan(question.get("olderThanMs").asLong())
                .usePrefixListing(question.get("byPrefix").asBoolean())
                .deleteWith(file -> {})
                .execute();
        var found = Json.array();
        Stream<String> sorted = Stream.of(Iterables.toArray(result.orphanFileLocations(), String.class)).sorted();
        sorted.forEach(found::add);
        return Json.answer(found);
    }
}
