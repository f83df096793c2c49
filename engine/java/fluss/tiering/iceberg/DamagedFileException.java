package fluss.tiering.iceberg;

/** A metadata file of a lake table that is missing or damaged, or that may not be read. */
public final class DamagedFileException extends RuntimeException {

    private static final long serialVersionUID = 1L;

    /** What is wrong with a file that is missing. */
    static final String MISSING = "missing";

    /** What is wrong with a file that the operating system does not open. */
    static final String FORBIDDEN = "forbidden";

    private final String location;
    private final String kind;
    private final String what;

    /**
     * Name a file.
     *
     * @param location the location of the file
     * @param kind "metadata file", "manifest list" or "manifest"
     * @param what "missing", "forbidden", or why it is damaged
     */
    DamagedFileException(String location, String kind, String what) {
        super(kind + " " + location + ": " + what);
        this.location = location;
        this.kind = kind;
        this.what = what;
    }

    /** Return what Python makes an error of. */
    public String toJson() {
        return Json.object()
                .put("location", location)
                .put("kind", kind)
                .put("what", what)
                .toString();
    }
}
