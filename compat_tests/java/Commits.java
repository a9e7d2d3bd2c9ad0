import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/** What ending transactions takes: java Commits BOOTSTRAP TOPIC ID COUNT RECORDS; a line of numbers, in microseconds. */
public class Commits {
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
                long began = System.nanoTime();
                producer.beginTransaction();
                for (int i = 0; i < records; i++)
                    producer.send(new ProducerRecord<>(args[1], new byte[100]));
                producer.flush();
                long written = System.nanoTime();
                producer.commitTransaction();
                long ended = System.nanoTime();
                if (n >= count / 4) {  // before, the compiler is at work
                    commits.add((ended - written) / 1000);
                    all.add((ended - began) / 1000);
                }
            }
        }
        for (List<Long> each : List.of(commits, all)) {
            Collections.sort(each);
            System.out.print(each.get(each.size() / 2) + " " + each.get(each.size() * 99 / 100) + " ");
        }
        System.out.println();
    }
}
