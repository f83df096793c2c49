package fluss.tiering.iceberg;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.SnapshotUtil;

/**
 * Finds the metadata file of a lake table that is missing or damaged, after a call to Iceberg has failed.
 *
 * <p>Iceberg's own errors say what its reader stumbled over, often without the file. So the files are read once more
 * here, each by itself.
 */
final class MetadataFiles {

    private static final String METADATA = "metadata file";
    private static final String END = "it ends too early";

    private MetadataFiles() {}

    /** A file that cannot be read. */
    private static final class Unreadable extends Exception {
        private static final long serialVersionUID = 1L;
        private final String location;
        private final String kind;

        Unreadable(String location, String kind, RuntimeException cause) {
            super(cause);
            this.location = location;
            this.kind = kind;
        }

        /** Return what is wrong with the file; null if its store does not give its bytes. */
        DamagedFileException damage(FileIO io) {
            String what = damageOf(io, location, getCause());
            return what == null ? null : new DamagedFileException(location, kind, what);
        }
    }

    /**
     * Read the metadata of the current snapshot to its end, anew and not from what Iceberg remembers.
     *
     * @throws DamagedFileException if a file of it is missing or damaged
     */
    static void check(LakeTable table) {
        try {
            read(table, false);
        } catch (Unreadable error) {
            DamagedFileException damage = error.damage(table.io());
            throw damage == null ? (RuntimeException) error.getCause() : damage;
        }
    }

    /**
     * Return the file that cannot be read, and the way back: the newest snapshot whose metadata is whole, and those
     * after it with their summaries, the newest first; null if all files can be read, or if their store fails.
     */
    static Object damage(LakeTable table, boolean everything) {
        try {
            read(table, everything);
            return null;
        } catch (Unreadable error) {
            DamagedFileException damage = error.damage(table.io());
            if (damage == null) {
                return null;
            }
            ObjectNode found = Json.object();
            found.set("damage", Json.read(damage.toJson()));
            Snapshot whole = table.currentSnapshot();
            var undone = Json.array();
            while (whole != null && !isWhole(table, whole)) {
                undone.add(History.described(whole));
                whole = whole.parentId() == null ? null : table.snapshot(whole.parentId());
            }
            if (whole != null) {
                found.put("whole", whole.snapshotId());
            }
            found.set("undone", undone);
            return Json.answer(found);
        }
    }

    /** Return the file of some snapshots that cannot be read, as JSON; null if all can, or if their store fails. */
    static String damage(LakeTable table, List<Snapshot> snapshots) {
        try {
            read(table, snapshots);
            return null;
        } catch (Unreadable error) {
            DamagedFileException damage = error.damage(table.io());
            return damage == null ? null : damage.toJson();
        }
    }

    /** Return the error of a metadata file of a table; null if it can be read, or if its store fails. */
    static DamagedFileException damage(FileIO io, String location) {
        try {
            TableMetadataParser.read(io, location);
            return null;
        } catch (RuntimeException error) {
            return new Unreadable(location, METADATA, error).damage(io);
        }
    }

    private static void read(LakeTable table, boolean everything) throws Unreadable {
        String location = table.operations().current().metadataFileLocation();
        TableMetadata metadata;
        try {
            // Iceberg's objects remember what they have read before.
            metadata = TableMetadataParser.read(table.io(), location);
        } catch (RuntimeException error) {
            throw new Unreadable(location, METADATA, error);
        }
        Snapshot current = SnapshotUtil.latestSnapshot(metadata, table.branch());
        read(table, current == null ? List.of() : List.of(current));
        if (everything) {
            read(table, metadata.snapshots());
        }
    }

    private static boolean isWhole(LakeTable table, Snapshot snapshot) {
        try {
            read(table, List.of(snapshot));
            return true;
        } catch (Unreadable error) {
            return false;
        }
    }

    private static void read(LakeTable table, List<Snapshot> snapshots) throws Unreadable {
        Set<String> seen = new HashSet<>();
        for (Snapshot snapshot : snapshots) {
            List<ManifestFile> manifests;
            try {
                manifests = snapshot.allManifests(table.io());
            } catch (RuntimeException error) {
                throw new Unreadable(snapshot.manifestListLocation(), "manifest list", error);
            }
            for (ManifestFile manifest : manifests) {
                if (seen.add(manifest.path())) {
                    try (ManifestReader<? extends ContentFile<?>> reader = open(table, manifest)) {
                        Iterables.size(reader);
                    } catch (IOException error) {
                        throw new Unreadable(manifest.path(), "manifest", new UncheckedIOException(error));
                    } catch (RuntimeException error) {
                        throw new Unreadable(manifest.path(), "manifest", error);
                    }
                }
            }
        }
    }

    /** Open a manifest of data files or of delete files. */
    static ManifestReader<? extends ContentFile<?>> open(LakeTable table, ManifestFile manifest) {
        return manifest.content() == ManifestContent.DELETES
                ? ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
                : ManifestFiles.read(manifest, table.io(), table.specs());
    }

    /** Return what is wrong with a file that Iceberg cannot read; null if its store does not give its bytes. */
    private static String damageOf(FileIO io, String location, Throwable failure) {
        try {
            // S3 refuses a range of an empty object instead of ending it.
            if (io.newInputFile(location).getLength() == 0) {
                return END;
            }
            try (SeekableInputStream stream = io.newInputFile(location).newStream()) {
                stream.transferTo(OutputStream.nullOutputStream());
            }
        } catch (RuntimeException | IOException error) {
            if (Failures.isDenied(error)) {
                return DamagedFileException.FORBIDDEN;
            }
            Set<String> names = Failures.chain(error).stream()
                    .map(each -> each.getClass().getSimpleName())
                    .collect(Collectors.toSet());
            if (error instanceof NotFoundException || names.contains(FileNotFoundException.class.getSimpleName())) {
                return DamagedFileException.MISSING;
            }
            // Hadoop compares the bytes of a local file with its checksums.
            return names.contains("ChecksumException") ? Failures.rootText(error) : null;
        }
        String why = Failures.rootText(failure);
        return why.equals("EOFException") ? END : why;
    }
}
