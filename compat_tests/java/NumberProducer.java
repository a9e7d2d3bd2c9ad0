import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Produces numbers with acks=all and idempotence to the partitions of a topic in turn, until the end of standard input.
 * Arguments: bootstrap, topic, partitions, records per second, request timeout (ms). Prints a line per acknowledged
 * record: number, partition, offset, monotonic clock (ns); or "refused" and the error.
 */
public class NumberProducer {
    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        long pauseNs = 1_000_000_000L / Integer.parseInt(args[3]);
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0], "acks", "all", "linger.ms", 0, "request.timeout.ms", args[4]);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            long next = System.nanoTime();
            for (int number = 0; System.in.available() == 0; number++) {
                int sent = number;
                String value = Integer.toString(number);
                producer.send(new ProducerRecord<>(args[1], number % partitions, null, value), (data, error) -> {
                    String result = error != null
                        ? "refused " + error
                        : sent + " " + data.partition() + " " + data.offset() + " " + System.nanoTime();
                    System.out.println(result);
                });
                next = Math.max(next + pauseNs, System.nanoTime());
                Thread.sleep(Math.max(0, (next - System.nanoTime()) / 1_000_000));
            }
        }
    }
}
