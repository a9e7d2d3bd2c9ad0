import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Writes numbers with acks=all, idempotent as by default, to the partitions of a topic in turn, until standard input
 * ends. Arguments: bootstrap, topic, partitions, records a second,
 * milliseconds that a broker's answer is waited for. A line out for each record that was acknowledged:
 * number, partition, offset, nanoseconds of the monotonic clock; or "refused" and why.
 */
public class Produce {
    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        long pauseNs = 1_000_000_000L / Integer.parseInt(args[3]);
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "acks", "all", "linger.ms", 0, "request.timeout.ms", args[4]);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            long next = System.nanoTime();
            for (int number = 0; System.in.available() == 0; number++) {
                int own = number;
                String value = Integer.toString(number);
                producer.send(new ProducerRecord<>(args[1], number % partitions, null, value), (data, error) -> {
                    String told = error != null
                        ? "refused " + error
                        : own + " " + data.partition() + " " + data.offset() + " " + System.nanoTime();
                    System.out.println(told);
                });
                next = Math.max(next + pauseNs, System.nanoTime());
                Thread.sleep(Math.max(0, (next - System.nanoTime()) / 1_000_000));
            }
        }
    }
}
