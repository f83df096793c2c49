import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN and HDFS in one JVM. The arguments are the folder for the settings and the port that listens when it is ready. */
public final class MiniHadoop {
  public static void main(String[] arguments) throws Exception {
    File folder = new File(arguments[0]);
    YarnConfiguration conf = new YarnConfiguration();
    conf.set("yarn.scheduler.capacity.root.queues", "default");
    conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
    conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
    conf.setInt("yarn.nodemanager.resource.memory-mb", 8192);
    conf.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
    conf.setInt("yarn.scheduler.minimum-allocation-mb", 256);
    conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.5");
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(conf, new File(folder, "hdfs")).numDataNodes(1).build();
    System.setProperty("test.build.data", folder + "/yarn");
    MiniYARNCluster yarn = new MiniYARNCluster("yarn", 1, 1, 1);
    yarn.init(conf);
    yarn.start();
    Configuration client = new Configuration(yarn.getConfig());
    // The class that the tests of Hadoop set is not among Spark's jars.
    client.set("net.topology.node.switch.mapping.impl", "org.apache.hadoop.net.ScriptBasedMapping");
    client.set("fs.defaultFS", hdfs.getFileSystem().getUri().toString());
    for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
      try (OutputStream file = new FileOutputStream(new File(folder, name))) {
        client.writeXml(file);
      }
    }
    new ServerSocket(Integer.parseInt(arguments[1]), 50, InetAddress.getLoopbackAddress());
    Thread.currentThread().join();
  }
}
