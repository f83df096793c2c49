import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Makes the tables of locks and transactions, which are else made by a tool of Hive's whole distribution. */
public final class HiveTables {
  public static void main(String[] arguments) throws Exception {
    TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
  }
}
