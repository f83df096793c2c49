import java.util.Map;
import org.apache.fluss.cluster.Cluster;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TableInfo;
import org.apache.fluss.metadata.TableOrPartition;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.types.DataTypes;

/**
 * Prints which number of buckets Fluss's client takes for a partition, or for a table without partitions. Each argument
 * is EPOCH:TABLE:PARTITION:OWN, where OWN is the number that the cluster told, or "-"; PARTITION is an id, or "-". Each
 * line of the output is the number, or "refused".
 */
final class BucketCounts {
    private BucketCounts() {}

    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String[] parts = argument.split(":");
            Schema schema = Schema.newBuilder().column("id", DataTypes.BIGINT()).column("day", DataTypes.STRING()).build();
            TableDescriptor.Builder descriptor =
                    TableDescriptor.builder().schema(schema).distributedBy(Integer.parseInt(parts[1]), "id");
            Long partition = parts[2].equals("-") ? null : Long.valueOf(parts[2]);
            if (partition != null) {
                descriptor.partitionedBy("day");
            }
            TableInfo table =
                    TableInfo.of(
                            TablePath.of("db", "t"), 7L, 1, descriptor.build(), null, 0L, 0L, Long.parseLong(parts[0]));
            Map<TableOrPartition, Integer> told =
                    parts[3].equals("-") ? Map.of() : Map.of(TableOrPartition.of(7L, partition), Integer.valueOf(parts[3]));
            Cluster cluster = new Cluster(Map.of(), null, Map.of(), Map.of(), Map.of(), told);
            try {
                System.out.println(cluster.getBucketCountOrFallback(table, partition));
            } catch (RuntimeException refused) {
                System.out.println("refused");
            }
        }
    }
}
