package fluss.tiering.iceberg;

import java.util.ArrayList;
import java.util.List;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.exceptions.ValidationException;

/** What exceptions say. */
final class Failures {

    /** Causes may form a circle. */
    private static final int MAX_CAUSES = 20;

    private Failures() {}

    /** Return an exception and its causes. */
    private static List<Throwable> chain(Throwable failure) {
        List<Throwable> found = new ArrayList<>();
        for (Throwable each = failure; each != null && found.size() < MAX_CAUSES; each = each.getCause()) {
            found.add(each);
        }
        return found;
    }

    /** Return whether a commit has certainly not landed, and never will: see {@link SettledTableOperations}. */
    static boolean isConflict(Throwable failure) {
        List<Throwable> chain = chain(failure);
        return chain.stream().noneMatch(CommitStateUnknownException.class::isInstance)
                && chain.stream().anyMatch(each ->
                        each instanceof CommitFailedException || each instanceof ValidationException);
    }

    /** Return the root cause in one line. */
    static String rootText(Throwable failure) {
        List<Throwable> chain = chain(failure);
        Throwable root = chain.get(chain.size() - 1);
        String name = root.getClass().getSimpleName(), message = root.getMessage();
        return message == null || message.isEmpty() ? name : name + ": " + message.lines().findFirst().orElse("");
    }
}
