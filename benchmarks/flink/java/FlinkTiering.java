import org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint;

/** Fluss's tiering service in a mini cluster of Flink in this process, which lives until it is killed. */
public final class FlinkTiering {
    private FlinkTiering() {}

    public static void main(String[] arguments) throws Exception {
        FlussLakeTieringEntrypoint.main(arguments);
        Thread.currentThread().join();
    }
}
