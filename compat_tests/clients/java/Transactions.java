// Transactions of Kafka's own Java client: Transactions BOOTSTRAP TOPIC ID.
// Steps: compat_tests/transactions/test_client_transactions.py. Prints one line of JSON.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static String bootstrap, topic, id;

    static KafkaProducer<String, String> producer() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", id);
        KafkaProducer<String, String> made = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static void send(KafkaProducer<String, String> to, String value) throws Exception {
        to.beginTransaction();
        for (int partition = 0; partition < 2; partition++)
            to.send(new ProducerRecord<>(topic, partition, null, value + partition)).get();
    }

    static void positions(KafkaProducer<String, String> of, long offset) {
        of.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)), new ConsumerGroupMetadata(id));
    }

    static String read(String level) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", level, "auto.offset.reset", "earliest");
        TreeSet<String> seen = new TreeSet<>();
        int count = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            while (!seen.containsAll(List.of("e0", "e1")))
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    seen.add(record.value());
                    count++;
                }
        }
        if (count != seen.size())
            throw new IllegalStateException("a record was seen twice");
        return "\"" + level + "\": [\"" + String.join("\", \"", seen) + "\"]";
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        id = args[2];
        KafkaProducer<String, String> first = producer();
        send(first, "a");
        first.commitTransaction();
        send(first, "b");
        first.abortTransaction();
        send(first, "c");
        positions(first, 1);
        first.commitTransaction();
        send(first, "x");
        positions(first, 9);
        first.abortTransaction();
        send(first, "d");
        KafkaProducer<String, String> second = producer();
        boolean fenced = false;
        try {
            first.commitTransaction();
        } catch (KafkaException e) {
            fenced = true;
        }
        send(second, "e");
        second.commitTransaction();
        System.out.println("{\"fenced\": " + fenced + ", " + read("read_committed") + ", " + read("read_uncommitted") + "}");
        first.close(Duration.ZERO);
        second.close();
    }
}
