import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** Transactions of Kafka's producer: java TransactionalProducer BOOTSTRAP TOPIC ID [TOPIC ID]; prints a line per step. */
public class TransactionalProducer {
    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", id);
        p.put("transaction.timeout.ms", "60000");
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> to, String topic, String value) throws Exception {
        to.send(new ProducerRecord<>(topic, 0, null, value + "0"));
        to.send(new ProducerRecord<>(topic, 1, null, value + "1")).get();
    }

    static Map<TopicPartition, Long> ends(String bootstrap, List<TopicPartition> parts, String isolation) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("isolation.level", isolation);
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            return c.endOffsets(parts);
        }
    }

    /** Wait for the transaction markers: EndTxn is answered before they are written. */
    static void awaitMarkers(String bootstrap, String topic) throws Exception {
        List<TopicPartition> parts = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        while (!ends(bootstrap, parts, "read_committed").equals(ends(bootstrap, parts, "read_uncommitted")))
            Thread.sleep(50);
    }

    static List<String> read(String bootstrap, String topic, String isolation) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("isolation.level", isolation);
        p.put("auto.offset.reset", "earliest");
        List<String> out = new ArrayList<>();
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> parts = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            c.assign(parts);
            Map<TopicPartition, Long> ends = c.endOffsets(parts);
            while (parts.stream().anyMatch(x -> c.position(x) < ends.get(x)))
                c.poll(Duration.ofMillis(200)).forEach(r -> out.add(r.value()));
        }
        Collections.sort(out);
        return out;
    }

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i += 2)
            transact(args[0], args[i], args[i + 1]);
    }

    static void transact(String bootstrap, String topic, String id) throws Exception {
        KafkaProducer<String, String> first = producer(bootstrap, id);
        first.initTransactions();
        first.beginTransaction();
        send(first, topic, "a");
        first.commitTransaction();
        System.out.println("committed");
        first.beginTransaction();
        send(first, topic, "b");
        first.abortTransaction();
        System.out.println("aborted");
        first.beginTransaction();
        first.abortTransaction();
        System.out.println("aborted empty");
        for (int i = 0; i < 20; i++) {
            first.beginTransaction();
            send(first, topic, "c" + i + "-");
            first.commitTransaction();
        }
        System.out.println("committed 20");
        first.beginTransaction();
        send(first, topic, "d");
        KafkaProducer<String, String> second = producer(bootstrap, id);
        second.initTransactions();
        System.out.println("second initialized");
        try {
            send(first, topic, "e");
            first.commitTransaction();
            System.out.println("not fenced");
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            System.out.println("fenced: " + cause.getClass().getSimpleName());
        }
        second.beginTransaction();
        send(second, topic, "f");
        second.commitTransaction();
        awaitMarkers(bootstrap, topic);
        System.out.println("committed: " + read(bootstrap, topic, "read_committed"));
        System.out.println("written: " + read(bootstrap, topic, "read_uncommitted").size());
        first.close(Duration.ZERO);
        second.close();
    }
}
