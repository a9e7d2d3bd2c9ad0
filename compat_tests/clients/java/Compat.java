// Kafka's own Java client.
// Compat all BOOTSTRAP TOPIC GROUP: write with each codec, read all records back, print one line of JSON.
// Compat member BOOTSTRAP TOPIC GROUP: read as a member of a group until killed, a line for each record.
// Compat new-member|sharer BOOTSTRAP TOPIC GROUP: the same in a group of KIP-848, and in a share group.
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Compat {
    static final int COUNT = 40;
    static final long BASE_MS = Long.parseLong(System.getenv().getOrDefault("COMPAT_BASE_MS", "0"));
    static final int BIG = 1_000_000;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String quoted(byte[] raw) {
        return raw == null ? "null" : '"' + new String(raw, StandardCharsets.UTF_8) + '"';
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 20);
        return new KafkaProducer<>(new HashMap<>(config), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
            "session.timeout.ms", 6000, "heartbeat.interval.ms", 300));
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void member(String bootstrap, String topic, String group) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, group);
        consumer.subscribe(List.of(topic));
        while (true) {
            consumer.poll(Duration.ofMillis(200)).forEach(Compat::show);
        }
    }

    static void newMember(String bootstrap, String topic, String group) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest", "group.protocol", "consumer");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(new HashMap<>(config), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        while (true) {
            consumer.poll(Duration.ofMillis(200)).forEach(Compat::show);
        }
    }

    static void sharer(String bootstrap, String topic, String group) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", group);
        KafkaShareConsumer<byte[], byte[]> consumer =
            new KafkaShareConsumer<>(new HashMap<>(config), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        while (true) {
            consumer.poll(Duration.ofMillis(200)).forEach(Compat::show);
            consumer.commitSync();
        }
    }

    static void show(ConsumerRecord<byte[], byte[]> r) {
        System.out.println(r.partition() + " " + new String(r.value(), StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[1], topic = args[2], group = args[3], bigTopic = topic + "-big";
        if (args[0].equals("member")) {
            member(bootstrap, topic, group);
        }
        if (args[0].equals("new-member")) {
            newMember(bootstrap, topic, group);
        }
        if (args[0].equals("sharer")) {
            sharer(bootstrap, topic, group);
        }
        Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1), new NewTopic(bigTopic, 1, (short) 1))).all().get();
        for (String codec : CODECS) {
            try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, codec)) {
                for (int i = 0; i < COUNT; i++) {
                    byte[] key = i % 7 == 0 ? null : bytes("key-" + i);
                    byte[] value = i % 11 == 5 ? null : bytes(codec + "-" + i);
                    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, null, BASE_MS + i, key, value);
                    record.headers().add("n", bytes(String.valueOf(i)));
                    producer.send(record);
                }
            }
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, "none")) {
            producer.send(new ProducerRecord<>(bigTopic, new byte[BIG])).get();
        }
        List<String> got = new ArrayList<>();
        int big = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, group)) {
            consumer.subscribe(List.of(topic, bigTopic));
            while (got.size() < COUNT * CODECS.size() || big == 0) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofSeconds(1))) {
                    if (r.topic().equals(bigTopic)) {
                        big = r.value().length;
                        continue;
                    }
                    byte[] n = r.headers().lastHeader("n").value();
                    got.add("[" + quoted(r.key()) + "," + quoted(r.value()) + "," + quoted(n) + "," + r.timestamp() + "]");
                }
            }
            consumer.commitSync();
            long end = 0;
            List<TopicPartition> both = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            for (long offset : consumer.endOffsets(both).values()) {
                end += offset;
            }
            String state = admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString();
            consumer.close();
            admin.deleteTopics(List.of(bigTopic)).all().get();
            boolean deleted = !admin.listTopics().names().get().contains(bigTopic);
            System.out.println("{\"codecs\":[\"" + String.join("\",\"", CODECS) + "\"],\"got\":[" + String.join(",", got)
                + "],\"end\":" + end + ",\"big\":" + big + ",\"deleted\":" + deleted + ",\"state\":\"" + state + "\"}");
        }
        admin.close();
    }
}
