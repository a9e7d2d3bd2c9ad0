import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Latency of transactions: java CommitLatency BOOTSTRAP TOPIC TRANSACTIONAL_ID COUNT RECORDS. Prints median and 99th
 * percentile of commits, then of whole transactions, in microseconds.
 */
public class CommitLatency {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]), records = Integer.parseInt(args[4]);
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("transactional.id", args[2]);
        List<Long> commits = new ArrayList<>(), all = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int n = 0; n < count; n++) {
                long startNs = System.nanoTime();
                producer.beginTransaction();
                for (int i = 0; i < records; i++)
                    producer.send(new ProducerRecord<>(args[1], new byte[100]));
                producer.flush();
                long flushedNs = System.nanoTime();
                producer.commitTransaction();
                long endNs = System.nanoTime();
                if (n >= count / 4) {  // the JVM compiles the code during the first quarter
                    commits.add((endNs - flushedNs) / 1000);
                    all.add((endNs - startNs) / 1000);
                }
            }
        }
        for (List<Long> latencies : List.of(commits, all)) {
            Collections.sort(latencies);
            System.out.print(latencies.get(latencies.size() / 2) + " " + latencies.get(latencies.size() * 99 / 100) + " ");
        }
        System.out.println();
    }
}
