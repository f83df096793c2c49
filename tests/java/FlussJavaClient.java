import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.batch.BatchScanner;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.scanner.log.ScanRecords;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.Upsert;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.AggFunctionType;
import org.apache.fluss.metadata.AggFunctions;
import org.apache.fluss.metadata.DatabaseDescriptor;
import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.PartitionSpec;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TableInfo;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.core.type.TypeReference;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypeParser;
import org.apache.fluss.utils.CloseableIterator;

/**
 * Fluss's own client, driven by lines of JSON: each line of standard input is a request, each line of standard output its
 * answer, {"ok": …} or {"error": "…"}. The arguments are key=value, settings of the client. tests/fluss_java_client.py
 * describes the requests.
 */
final class FlussJavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(500);
    /** The number of polls without progress after which a log is taken for ended, though its end was not reached. */
    private static final int IDLE_POLLS = 20;

    private final Connection connection;
    private final Admin admin;

    private FlussJavaClient(Connection connection) {
        this.connection = connection;
        this.admin = connection.getAdmin();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Configuration settings = new Configuration();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.setString(parts[0], parts[1]);
        }
        FlussJavaClient client = null;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                // Not before: a client that replaces another one may start while the cluster does, too.
                if (client == null) {
                    client = new FlussJavaClient(ConnectionFactory.createConnection(settings));
                }
                answer.set("ok", client.answer(JSON.readTree(line)));
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", withCauses(error));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        if (client != null) {
            client.connection.close();
        }
        System.exit(0);
    }

    private JsonNode answer(JsonNode request) throws Exception {
        TablePath path = TablePath.of(request.get("path").get(0).asText(), request.get("path").get(1).asText());
        switch (request.get("do").asText()) {
            case "create":
                return create(path, request);
            case "drop":
                admin.dropTable(path, false).get();
                return null;
            case "info":
                return info(admin.getTableInfo(path).get());
            case "allow":
                Acls.allow(admin, request);
                return null;
            case "forbid":
                Acls.forbid(admin, request);
                return null;
            case "create_partition":
                admin.createPartition(path, new PartitionSpec(texts(request.get("values"))), false).get();
                return null;
            case "add_column":
                return change(
                        path,
                        TableChange.addColumn(
                                request.get("name").asText(),
                                DataTypeParser.parse(request.get("type").asText()),
                                null,
                                TableChange.ColumnPosition.last()));
            case "append":
                return append(path, request);
            case "upsert":
            case "delete":
                return upsert(path, request);
            case "log":
                return log(path, request);
            case "kv":
                return kv(path, request);
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    private JsonNode create(TablePath path, JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode column : request.get("columns")) {
            String name = column.get("name").asText();
            DataType type = DataTypeParser.parse(column.get("type").asText());
            if (column.hasNonNull("aggregate")) {
                AggFunctionType function = AggFunctionType.fromString(column.get("aggregate").asText());
                schema.column(name, type, AggFunctions.of(function, Collections.emptyMap()));
            } else {
                schema.column(name, type);
            }
            if (column.path("auto_increment").asBoolean()) {
                schema.enableAutoIncrement(name);
            }
        }
        List<String> primaryKey = list(request.get("primary_key"));
        if (!primaryKey.isEmpty()) {
            schema.primaryKey(primaryKey);
        }
        TableDescriptor.Builder table =
                TableDescriptor.builder()
                        .schema(schema.build())
                        .distributedBy(request.get("buckets").asInt(), list(request.get("bucket_keys")))
                        .properties(texts(request.get("properties")));
        List<String> partitionKeys = list(request.get("partition_keys"));
        if (!partitionKeys.isEmpty()) {
            table.partitionedBy(partitionKeys);
        }
        admin.createDatabase(path.getDatabaseName(), DatabaseDescriptor.EMPTY, true).get();
        admin.createTable(path, table.build(), false).get();
        return info(admin.getTableInfo(path).get());
    }

    private static JsonNode info(TableInfo table) {
        ObjectNode info = JSON.createObjectNode();
        info.put("table_id", table.getTableId()).put("schema_id", table.getSchemaId()).put("buckets", table.getNumBuckets());
        ArrayNode columns = info.putArray("columns");
        for (Schema.Column column : table.getSchema().getColumns()) {
            columns.addArray().add(column.getName()).add(column.getDataType().asSerializableString());
        }
        info.set("properties", JSON.valueToTree(table.getProperties().toMap()));
        return info;
    }

    private JsonNode change(TablePath path, TableChange change) throws Exception {
        admin.alterTable(path, List.of(change), false).get();
        return info(admin.getTableInfo(path).get());
    }

    private JsonNode append(TablePath path, JsonNode request) throws Exception {
        try (Table table = connection.getTable(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            List<Future<?>> written = new ArrayList<>();
            for (GenericRow row : rows(table, request)) {
                written.add(writer.append(row));
            }
            writer.flush();
            return acknowledged(written);
        }
    }

    private JsonNode upsert(TablePath path, JsonNode request) throws Exception {
        try (Table table = connection.getTable(path)) {
            Upsert upsert = table.newUpsert();
            if (request.hasNonNull("columns")) {
                upsert = upsert.partialUpdate(list(request.get("columns")).toArray(new String[0]));
            }
            UpsertWriter writer = upsert.createWriter();
            boolean delete = request.get("do").asText().equals("delete");
            List<Future<?>> written = new ArrayList<>();
            for (GenericRow row : rows(table, request)) {
                written.add(delete ? writer.delete(row) : writer.upsert(row));
            }
            writer.flush();
            return acknowledged(written);
        }
    }

    private static List<GenericRow> rows(Table table, JsonNode request) {
        List<DataType> types = table.getTableInfo().getRowType().getChildren();
        List<GenericRow> rows = new ArrayList<>();
        for (JsonNode row : request.get("rows")) {
            rows.add(FlussValues.row(row, types));
        }
        return rows;
    }

    private static JsonNode acknowledged(List<Future<?>> written) throws Exception {
        for (Future<?> each : written) {
            each.get();
        }
        return JSON.getNodeFactory().numberNode(written.size());
    }

    private JsonNode log(TablePath path, JsonNode request) throws Exception {
        try (Table table = connection.getTable(path)) {
            TableInfo info = table.getTableInfo();
            Scan scan = table.newScan();
            int[] projected = projected(info, request);
            scan = projected == null ? scan : scan.project(projected);
            List<DataType> types = types(info, projected);
            ArrayNode rows = JSON.createArrayNode();
            Map<TableBucket, Long> ends = new HashMap<>();
            try (LogScanner scanner = scan.createLogScanner()) {
                Collection<Integer> buckets = IntStream.range(0, info.getNumBuckets()).boxed().collect(Collectors.toList());
                if (info.isPartitioned()) {
                    for (PartitionInfo partition : admin.listPartitionInfos(path).get()) {
                        long id = partition.getPartitionId();
                        Map<Integer, Long> offsets =
                                admin.listOffsets(path, partition.getPartitionName(), buckets, new OffsetSpec.LatestSpec())
                                        .all()
                                        .get();
                        offsets.forEach((bucket, end) -> ends.put(new TableBucket(info.getTableId(), id, bucket), end));
                        buckets.forEach(bucket -> scanner.subscribeFromBeginning(id, bucket));
                    }
                } else {
                    Map<Integer, Long> offsets = admin.listOffsets(path, buckets, new OffsetSpec.LatestSpec()).all().get();
                    offsets.forEach((bucket, end) -> ends.put(new TableBucket(info.getTableId(), bucket), end));
                    buckets.forEach(scanner::subscribeFromBeginning);
                }
                ends.values().removeIf(end -> end <= 0);
                for (int idle = 0; !ends.isEmpty() && idle < IDLE_POLLS; idle++) {
                    ScanRecords records = scanner.poll(POLL);
                    idle = records.hasProgress() ? -1 : idle;
                    for (TableBucket bucket : records.buckets()) {
                        for (ScanRecord record : records.records(bucket)) {
                            add(rows, bucket, record, types);
                        }
                        Long reached = records.consumedUpToOffset(bucket);
                        ends.computeIfPresent(bucket, (key, end) -> reached != null && reached >= end ? null : end);
                    }
                }
            }
            ObjectNode read = JSON.createObjectNode();
            read.set("rows", rows);
            read.put("complete", ends.isEmpty());
            return read;
        }
    }

    private static void add(ArrayNode rows, TableBucket bucket, ScanRecord record, List<DataType> types) {
        ObjectNode row = rows.addObject();
        row.put("partition_id", bucket.getPartitionId()).put("bucket", bucket.getBucket());
        row.put("offset", record.logOffset()).put("time", record.timestamp());
        row.put("kind", record.getChangeType().shortString());
        row.set("values", FlussValues.json(record.getRow(), types));
    }

    private JsonNode kv(TablePath path, JsonNode request) throws Exception {
        try (Table table = connection.getTable(path)) {
            int[] projected = projected(table.getTableInfo(), request);
            List<DataType> types = types(table.getTableInfo(), projected);
            ArrayNode rows = JSON.createArrayNode();
            Scan scan = projected == null ? table.newScan() : table.newScan().project(projected);
            try (BatchScanner scanner = scan.createBatchScanner()) {
                for (CloseableIterator<InternalRow> batch; (batch = scanner.pollBatch(POLL)) != null; batch.close()) {
                    while (batch.hasNext()) {
                        rows.add(FlussValues.json(batch.next(), types));
                    }
                }
            }
            return rows;
        }
    }

    private static int[] projected(TableInfo table, JsonNode request) {
        if (!request.hasNonNull("columns")) {
            return null;
        }
        return list(request.get("columns")).stream().mapToInt(table.getRowType()::getFieldIndex).toArray();
    }

    private static List<DataType> types(TableInfo table, int[] projected) {
        List<DataType> all = table.getRowType().getChildren();
        return projected == null ? all : Arrays.stream(projected).mapToObj(all::get).collect(Collectors.toList());
    }

    private static List<String> list(JsonNode texts) {
        return JSON.convertValue(texts, new TypeReference<List<String>>() {});
    }

    private static Map<String, String> texts(JsonNode object) {
        return JSON.convertValue(object, new TypeReference<Map<String, String>>() {});
    }

    private static String withCauses(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append("; caused by ").append(cause);
        }
        return text.toString();
    }
}
