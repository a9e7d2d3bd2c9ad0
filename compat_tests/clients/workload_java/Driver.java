// Driver of Kafka's own Java clients for compat_tests/workloads.
// Jobs are read from stdin and results written to stdout, a JSON object per line; each job runs in its own thread.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public class Driver {
    static final int POOL_BYTES = 1 << 20;
    static final long IDLE_MS = 6_000;
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;
    static final Map<String, KafkaProducer<byte[], byte[]>> HELD = new ConcurrentHashMap<>();

    static void emit(Object value) throws IOException {
        String line = JSON.writeValueAsString(value);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    static byte[] pool(long seed, boolean text) {
        byte[] out = new byte[POOL_BYTES];
        if (!text) {
            new Random(seed).nextBytes(out);
            return out;
        }
        for (int i = 0; i < out.length;) {
            byte[] line = ("line " + i / 64 + " of seed " + seed + ";").getBytes(StandardCharsets.UTF_8);
            int size = Math.min(line.length, out.length - i);
            System.arraycopy(line, 0, out, i, size);
            i += size;
        }
        return out;
    }

    static byte[] fill(byte[] pool, int index, int size) {
        byte[] out = new byte[size];
        for (int done = 0, at = (int) ((index * 7919L) % pool.length); done < size; at = 0) {
            int count = Math.min(size - done, pool.length - at);
            System.arraycopy(pool, at, out, done, count);
            done += count;
        }
        return out;
    }

    static Map<String, Object> settings(JsonNode job) {
        Map<String, Object> out = new HashMap<>();
        job.get("settings").fields().forEachRemaining(each -> out.put(each.getKey(), each.getValue().asText()));
        out.put("bootstrap.servers", job.get("bootstrap").asText());
        out.put("client.id", job.get("client_id").asText());
        return out;
    }

    static String name(Throwable error) {
        return error instanceof ExecutionException && error.getCause() != null ? name(error.getCause()) : error.getClass().getSimpleName();
    }

    static Object produce(JsonNode job) throws Exception {
        Map<String, Object> settings = settings(job);
        JsonNode txn = job.get("transaction");
        if (!txn.isNull())
            settings.put("transactional.id", txn.get("id").asText());
        Map<String, List<Integer>> failed = new ConcurrentHashMap<>();
        byte[] pool = pool(job.get("seed").asLong(), job.get("text").asBoolean());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (!txn.isNull())
            producer.initTransactions();
        int in = 0, i = 0, count = job.get("records").size();
        int size = txn.isNull() ? 0 : txn.get("size").asInt(), aborts = txn.isNull() ? 0 : txn.get("aborts").asInt();
        for (JsonNode row : job.get("records")) {
            if (size > 0 && in == 0)
                producer.beginTransaction();
            send(job, producer, row, pool, i, failed);
            in++;
            if (size > 0 && in == size && i != count - 1) {
                end(producer, aborts == 0 || i / size % aborts != 0);
                in = 0;
            }
            i++;
        }
        producer.flush();
        if (size > 0 && in > 0) {
            if (txn.get("leave_open").asBoolean()) {
                HELD.put(job.get("handle").asText(), producer);
                return Map.of("failed", failed);
            }
            end(producer, true);
        }
        producer.close();
        return Map.of("failed", failed);
    }

    static void send(JsonNode job, KafkaProducer<byte[], byte[]> producer, JsonNode row, byte[] pool, int i, Map<String, List<Integer>> failed) {
        byte[] key = row.get(1).isNull() ? null : row.get(1).asText().getBytes(StandardCharsets.UTF_8);
        byte[] value = row.get(2).asInt() < 0 ? null : fill(pool, i, row.get(2).asInt());
        var record = new ProducerRecord<>(job.get("topic").asText(), row.get(0).asInt(), row.get(3).asLong(), key, value);
        for (int h = 0; h < row.get(4).asInt(); h++)
            record.headers().add("h" + h, ("" + i).getBytes(StandardCharsets.UTF_8));
        try {
            Future<RecordMetadata> sent = producer.send(record, (metadata, error) -> {
                if (error != null)
                    failed.computeIfAbsent(name(error), any -> Collections.synchronizedList(new ArrayList<>())).add(i);
            });
            if (job.get("sync").asBoolean())
                sent.get();
        } catch (ExecutionException recorded) {
            // The callback has recorded the error.
        } catch (Exception error) {
            failed.computeIfAbsent("send: " + name(error), any -> Collections.synchronizedList(new ArrayList<>())).add(i);
        }
    }

    static void end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        producer.flush();
        if (commit)
            producer.commitTransaction();
        else
            producer.abortTransaction();
    }

    static Object finish(JsonNode job) {
        try (KafkaProducer<byte[], byte[]> producer = HELD.remove(job.get("handle").asText())) {
            end(producer, job.get("commit").asBoolean());
        } catch (KafkaException error) {
            return Map.of("failed", Map.of(name(error), List.of(0)));
        }
        return Map.of("failed", Map.of());
    }

    /** Records that the members of a consume job have read. */
    static class Reading {
        final JsonNode job;
        final Map<String, List<long[]>> rows = new TreeMap<>();
        final Map<String, Long> positions = new HashMap<>();
        final Map<String, Integer> errors = new TreeMap<>();
        final Map<String, Long> ends = new HashMap<>();
        final long deadlineMs;
        boolean finished;

        Reading(JsonNode job) {
            this.job = job;
            job.get("ends").fields().forEachRemaining(each -> ends.put(each.getKey(), each.getValue().asLong()));
            deadlineMs = System.currentTimeMillis() + (long) (job.get("timeout_s").asDouble() * 1000);
        }

        synchronized void add(ConsumerRecords<byte[], byte[]> records) {
            for (TopicPartition partition : records.partitions()) {
                List<long[]> into = rows.computeIfAbsent(partition.topic() + "/" + partition.partition(), any -> new ArrayList<>());
                for (ConsumerRecord<byte[], byte[]> record : records.records(partition))
                    into.add(row(record));
            }
        }

        synchronized void error(String name) {
            errors.merge(name, 1, Integer::sum);
        }

        synchronized boolean atEnd(KafkaConsumer<byte[], byte[]> consumer) throws IOException {
            for (TopicPartition partition : consumer.assignment()) {
                String name = partition.topic() + "/" + partition.partition();
                if (ends.containsKey(name) && positions.getOrDefault(name, -1L) < ends.get(name))
                    try {
                        positions.put(name, consumer.position(partition, Duration.ofMillis(100)));
                    } catch (TimeoutException unknown) {
                        break; // the position is not known yet
                    }
            }
            for (var each : ends.entrySet())
                if (positions.getOrDefault(each.getKey(), -1L) < each.getValue())
                    return false;
            if (!finished) {
                finished = true;
                emit(Map.of("id", job.get("id").asInt(), "event", "end"));
            }
            return true;
        }
    }

    static long[] row(ConsumerRecord<byte[], byte[]> record) {
        CRC32 digest = new CRC32();
        long key = -1;
        if (record.key() != null) {
            digest.update(record.key());
            key = digest.getValue();
        }
        if (record.value() != null)
            digest.update(record.value());
        for (Header header : record.headers()) {
            digest.update(header.key().getBytes(StandardCharsets.UTF_8));
            if (header.value() != null)
                digest.update(header.value());
        }
        long size = record.value() == null ? -1 : record.value().length;
        return new long[] {record.offset(), record.timestamp(), record.timestampType().id, size, digest.getValue(), key};
    }

    static Object consume(JsonNode job) throws Exception {
        Reading reading = new Reading(job);
        List<FutureTask<String>> members = new ArrayList<>();
        for (int i = 0; i < Math.max(1, job.get("members").asInt()); i++) {
            members.add(new FutureTask<>(() -> member(job, reading)));
            new Thread(members.get(i)).start();
        }
        String stop = "end";
        for (FutureTask<String> member : members)
            if (!member.get().equals("end"))
                stop = member.get();
        return Map.of("rows", reading.rows, "errors", reading.errors, "stop", stop);
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode job) {
        Map<String, Object> settings = settings(job);
        boolean inGroup = !job.get("group").isNull();
        if (inGroup)
            settings.put("group.id", job.get("group").asText());
        settings.putIfAbsent("auto.offset.reset", "earliest");
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = new ArrayList<>();
        job.get("topics").forEach(each -> topics.add(each.asText()));
        if (inGroup) {
            consumer.subscribe(topics);
            return consumer;
        }
        Map<TopicPartition, Long> starts = new LinkedHashMap<>();
        for (String topic : topics)
            for (int partition = 0; job.get("start").has(topic + "/" + partition); partition++)
                starts.put(new TopicPartition(topic, partition), job.get("start").get(topic + "/" + partition).asLong());
        consumer.assign(starts.keySet());
        starts.forEach((partition, offset) -> {
            if (offset >= 0)
                consumer.seek(partition, offset);
            else
                consumer.seekToBeginning(List.of(partition));
        });
        return consumer;
    }

    static String member(JsonNode job, Reading reading) throws Exception {
        long until = -1;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(job)) {
            while (true) {
                try {
                    reading.add(consumer.poll(Duration.ofMillis(200)));
                    if (until < 0 && reading.atEnd(consumer))
                        until = System.currentTimeMillis() + (long) (job.get("linger_s").asDouble() * 1000);
                } catch (RetriableException error) {
                    reading.error(name(error));
                } catch (RuntimeException error) {
                    reading.error(name(error));
                    return "error";
                }
                long now = System.currentTimeMillis();
                if (until >= 0 && now > until)
                    return "end";
                if (until < 0 && now > reading.deadlineMs)
                    return "timeout";
            }
        }
    }

    static void run(JsonNode job) throws IOException {
        ObjectNode response = JSON.createObjectNode().put("id", job.get("id").asInt());
        try {
            String op = job.get("op").asText();
            Object result = op.equals("produce") ? produce(job) : op.equals("finish") ? finish(job) : consume(job);
            response.set("result", JSON.valueToTree(result));
        } catch (Throwable error) {
            response.put("failure", name(error));
            System.err.println(job.get("client_id") + " " + error);
        }
        emit(response);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode job = JSON.readTree(line);
            new Thread(() -> {
                try {
                    run(job);
                } catch (IOException error) {
                    System.exit(1);
                }
            }).start();
        }
        System.exit(0);
    }
}
