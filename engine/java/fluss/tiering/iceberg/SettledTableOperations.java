package fluss.tiering.iceberg;

import java.util.List;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/**
 * The operations of a table, whose commits end in one of three ways only, whatever the catalog answers.
 *
 * <p>A commit that the table's history shows has landed. A commit that certainly has not landed, and never will, is a
 * {@link CommitFailedException}. Any other one is a {@link CommitStateUnknownException}. Iceberg deletes what it has
 * written for a commit after any exception but the last one, and so do we. A catalog, or a proxy before it, may however
 * answer with any error although the commit has landed, and may say that a commit has worked that has not.
 */
public final class SettledTableOperations implements TableOperations {

    /** How often a commit is sent that the catalog refuses although nobody has changed the table. */
    private static final int TRIES = 4;

    private static final long FIRST_PAUSE_MS = 100;

    private final TableOperations catalog;

    /**
     * Settle the commits of a table.
     *
     * @param catalog the operations of the table as its catalog has them
     */
    public SettledTableOperations(TableOperations catalog) {
        this.catalog = catalog;
    }

    @Override
    public void commit(TableMetadata base, TableMetadata metadata) {
        Change change = Change.between(base, metadata);
        if (change == null) {
            catalog.commit(base, metadata);
            return;
        }
        for (int attempt = 1; ; attempt++) {
            RuntimeException failure = failure(base, metadata, change);
            if (failure == null) {
                return;
            }
            TableMetadata found = lookUp(failure);
            if (change.isIn(found)) {
                return;
            }
            boolean refused = failure instanceof CommitFailedException;
            if (cannotLand(change, found, failure)) {
                // Iceberg applies the change to what it finds now, if that is still right, and tries again.
                throw refused ? failure : conflict(failure);
            }
            if (!refused || attempt == TRIES || !change.isUntouchedIn(found)) {
                throw unknown(failure);
            }
            pause(FIRST_PAUSE_MS << attempt, failure);
        }
    }

    /** Return why a commit may not have landed; null if it has. */
    private RuntimeException failure(TableMetadata base, TableMetadata metadata, Change change) {
        try {
            catalog.commit(base, metadata);
        } catch (NullPointerException error) {
            // The client of REST catalogs takes an empty answer for one.
            return new IllegalStateException("the catalog has answered nothing to the commit");
        } catch (RuntimeException error) {
            return error;
        }
        try {
            if (change.isIn(catalog.current())) {
                return null;
            }
        } catch (RuntimeException error) {
            // The catalog has said that the commit worked, and nothing speaks against it.
            return null;
        }
        return new IllegalStateException("the catalog says that it has committed, but the table does not show it");
    }

    private TableMetadata lookUp(RuntimeException failure) {
        try {
            return catalog.refresh();
        } catch (RuntimeException error) {
            if (error != failure) {
                failure.addSuppressed(error);
            }
            throw unknown(failure);
        }
    }

    /**
     * Return whether a commit has certainly not landed, and never will, also if the request is still under way.
     *
     * <p>That another snapshot is the current one proves nothing: this commit may have landed, others may have built on
     * it, and it may have been expired since. A copy of the catalog that is behind may have answered, too.
     *
     * @param found what the table is now
     * @param failure the answer to the request, or to the last one if the catalog's client has sent several
     */
    private boolean cannotLand(Change change, TableMetadata found, RuntimeException failure) {
        if (change.onlyRemoves()) {
            // Nothing was written for it, so that nothing is deleted if it fails.
            return failure instanceof CommitFailedException;
        }
        if (!change.isAbsentFrom(found)) {
            // Another try to commit the same snapshot has landed.
            return false;
        }
        if (!isRest()) {
            return change.isOvertakenIn(found) || change.isOutdatedIn(found);
        }
        // A request for a first snapshot that is still under way could land once the table is emptied.
        return change.isOvertakenIn(found) && (change.hasParent() || failure instanceof CommitFailedException);
    }

    /**
     * Return whether the catalog compares only what a commit demands, such as the current snapshot. Other catalogs
     * compare the location of the metadata, so that any other commit stops one that is under way.
     */
    private boolean isRest() {
        return catalog.getClass().getName().startsWith("org.apache.iceberg.rest.");
    }

    private static void pause(long milliseconds, RuntimeException failure) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw unknown(failure);
        }
    }

    private static CommitFailedException conflict(RuntimeException failure) {
        boolean isUnknown = failure instanceof CommitStateUnknownException && failure.getCause() != null;
        Throwable cause = isUnknown ? failure.getCause() : failure;
        return new CommitFailedException(cause, "%s", cause.getMessage());
    }

    private static CommitStateUnknownException unknown(RuntimeException failure) {
        return failure instanceof CommitStateUnknownException
                ? (CommitStateUnknownException) failure
                : new CommitStateUnknownException(failure);
    }

    @Override
    public TableMetadata current() {
        return catalog.current();
    }

    @Override
    public TableMetadata refresh() {
        return catalog.refresh();
    }

    @Override
    public FileIO io() {
        return catalog.io();
    }

    @Override
    public EncryptionManager encryption() {
        return catalog.encryption();
    }

    @Override
    public String metadataFileLocation(String fileName) {
        return catalog.metadataFileLocation(fileName);
    }

    @Override
    public LocationProvider locationProvider() {
        return catalog.locationProvider();
    }

    @Override
    public TableOperations temp(TableMetadata uncommittedMetadata) {
        return catalog.temp(uncommittedMetadata);
    }

    @Override
    public long newSnapshotId() {
        return catalog.newSnapshotId();
    }

    /** What a commit changes that the table's history shows: it adds a snapshot, or it removes some. */
    private static final class Change {
        private final TableMetadata base;
        private final TableMetadata metadata;
        private final Snapshot added;

        private Change(TableMetadata base, TableMetadata metadata, Snapshot added) {
            this.base = base;
            this.metadata = metadata;
            this.added = added;
        }

        /** Return the change; null if it is of another kind, for which Iceberg deletes no files. */
        static Change between(TableMetadata base, TableMetadata metadata) {
            if (base == null) {
                return null;
            }
            // On whatever branch: the newest one comes last.
            List<Snapshot> snapshots = metadata.snapshots();
            Snapshot newest = snapshots.isEmpty() ? null : snapshots.get(snapshots.size() - 1);
            if (newest != null && base.snapshot(newest.snapshotId()) == null) {
                return new Change(base, metadata, newest);
            }
            return base.snapshots().size() > metadata.snapshots().size() ? new Change(base, metadata, null) : null;
        }

        boolean isIn(TableMetadata found) {
            if (onlyRemoves()) {
                return base.snapshots().stream()
                        .mapToLong(Snapshot::snapshotId)
                        .noneMatch(id -> metadata.snapshot(id) == null && found.snapshot(id) != null);
            }
            Snapshot same = found.snapshot(added.snapshotId());
            if (same == null) {
                // Others may have built on it, and have expired it since.
                return found.snapshots().stream().anyMatch(each -> isAdded(each.parentId()));
            }
            // Another try to commit the same snapshot has other manifests.
            return added.manifestListLocation().equals(same.manifestListLocation());
        }

        private boolean isAdded(Long id) {
            return id != null && id == added.snapshotId();
        }

        boolean onlyRemoves() {
            return added == null;
        }

        boolean isAbsentFrom(TableMetadata found) {
            return onlyRemoves() || found.snapshot(added.snapshotId()) == null;
        }

        boolean hasParent() {
            return !base.refs().isEmpty();
        }

        /**
         * Another snapshot has the sequence number that this commit needs. A catalog gives each number once, also on
         * branches, but for a snapshot without a parent.
         */
        boolean isOvertakenIn(TableMetadata found) {
            long needed = base.lastSequenceNumber() + 1;
            return base.formatVersion() > 1
                    && found.snapshots().stream()
                            .anyMatch(each -> each.sequenceNumber() == needed && metadata.snapshot(each.snapshotId()) == null);
        }

        /** The table has newer metadata, and no snapshot was added to it since: the commit's metadata has no place. */
        boolean isOutdatedIn(TableMetadata found) {
            return found.lastSequenceNumber() == base.lastSequenceNumber()
                    && found.previousFiles().stream()
                            .anyMatch(each -> each.file().equals(base.metadataFileLocation()));
        }

        /** Nothing speaks against the commit, so that it may be sent again. */
        boolean isUntouchedIn(TableMetadata found) {
            return isAbsentFrom(found)
                    && base.refs().equals(found.refs())
                    && base.lastSequenceNumber() == found.lastSequenceNumber();
        }
    }
}
