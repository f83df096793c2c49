package fluss.tiering.iceberg;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotFoundException;

/**
 * Loads a table from its catalog, and does not wait for a metadata file that cannot become readable.
 *
 * <p>Iceberg's JDBC catalog reads a metadata file again and again when that fails, for about 95 seconds. This helps
 * while a store is away. A file that is damaged stays so.
 */
final class Loading {

    private static final String JDBC = "org.apache.iceberg.jdbc.JdbcCatalog";
    private static final String JDBC_UTIL = "org.apache.iceberg.jdbc.JdbcUtil";
    private static final Pattern NAMED =
            Pattern.compile("Failed to (?:read|open input stream for) file: (\\S+\\.metadata\\.json\\S*)");

    /** What Iceberg's Hadoop catalog says. */
    private static final Pattern GONE = Pattern.compile("Metadata file for version (\\d+) is missing under (\\S+)");

    /** How long a load may take before the metadata file is looked at. A usual one takes some milliseconds. */
    private static final long QUICK_MS = 2_000;

    private Loading() {}

    /**
     * Return a table of a catalog.
     *
     * @throws DamagedFileException if the table's metadata file is missing or damaged
     */
    static Table load(Catalog catalog, TableIdentifier identifier) {
        if (catalog.getClass().getName().equals(JDBC)) {
            return loadInBackground(catalog, identifier, QUICK_MS);
        }
        try {
            return catalog.loadTable(identifier);
        } catch (RuntimeException error) {
            DamagedFileException damage = named(error);
            throw damage == null ? error : damage;
        }
    }

    static Table loadInBackground(Catalog catalog, TableIdentifier identifier, long quickMs) {
        FutureTask<Table> load = new FutureTask<>(() -> catalog.loadTable(identifier));
        Thread thread = new Thread(load, "load " + identifier);
        thread.setDaemon(true);
        thread.start();
        try {
            try {
                return load.get(quickMs, TimeUnit.MILLISECONDS);
            } catch (TimeoutException error) {
                DamagedFileException damage = damage(catalog, identifier);
                if (damage != null) {
                    // This ends the pauses between its tries.
                    load.cancel(true);
                    throw damage;
                }
                return load.get();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            DamagedFileException damage =
                    cause instanceof NoSuchTableException ? null : damage(catalog, identifier);
            if (damage != null) {
                throw damage;
            }
            throw cause instanceof RuntimeException ? (RuntimeException) cause : new IllegalStateException(cause);
        }
    }

    /** Return the error of the metadata file that a JDBC catalog names; null if the file can be read. */
    private static DamagedFileException damage(Catalog catalog, TableIdentifier identifier) {
        try {
            TableOperations operations = (TableOperations) call(catalog, catalog.getClass(), "newTableOps", identifier);
            Class<?> util = operations.getClass().getClassLoader().loadClass(JDBC_UTIL);
            Object found = call(
                    null,
                    util,
                    "loadTable",
                    field(operations, "schemaVersion"),
                    field(operations, "connections"),
                    field(operations, "catalogName"),
                    identifier);
            Object location = ((Map<?, ?>) found).get("metadata_location");
            return location == null ? null : MetadataFiles.damage(operations.io(), location.toString());
        } catch (ReflectiveOperationException | RuntimeException error) {
            // The catalog does not answer, which the load says, or is of another version.
            return null;
        }
    }

    /** Call a method that is not public. Iceberg has no other way to the location of the metadata. */
    private static Object call(Object owner, Class<?> kind, String name, Object... arguments)
            throws ReflectiveOperationException {
        Method method = Arrays.stream(kind.getDeclaredMethods())
                .filter(each -> each.getName().equals(name) && each.getParameterCount() == arguments.length)
                .findFirst()
                .orElseThrow(() -> new NoSuchMethodException(name));
        method.setAccessible(true);
        return method.invoke(owner, arguments);
    }

    private static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    /** Return the error of a metadata file that other catalogs' errors name; null if the cause is another one. */
    private static DamagedFileException named(RuntimeException error) {
        String location = null;
        boolean isParsed = false;
        Throwable root = error;
        for (Throwable each : Failures.chain(error)) {
            Matcher matcher = NAMED.matcher(String.valueOf(each.getMessage()));
            location = location == null && matcher.find() ? matcher.group(1) : location;
            isParsed |= each.getClass().getName().contains("jackson");
            root = each;
        }
        if (location == null) {
            Matcher gone = GONE.matcher(String.valueOf(root.getMessage()));
            return gone.find()
                    ? metadataFile(gone.group(2) + "/v" + gone.group(1) + ".metadata.json", DamagedFileException.MISSING)
                    : null;
        }
        if (error instanceof NotFoundException) {
            boolean isDenied = Failures.isDenied(error);
            return metadataFile(location, isDenied ? DamagedFileException.FORBIDDEN : DamagedFileException.MISSING);
        }
        return isParsed ? metadataFile(location, Failures.rootText(error)) : null;
    }

    private static DamagedFileException metadataFile(String location, String what) {
        return new DamagedFileException(location, "metadata file", what);
    }
}
