import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Kafka Streams' smoke test for a number of seconds: java StreamsSmokeTest BOOTSTRAP KEYS RECORDS_PER_KEY SECONDS REPLICAS. */
public class StreamsSmokeTest {
    static final int PARTITIONS = 3;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int keys = Integer.parseInt(args[1]), most = Integer.parseInt(args[2]);
        Duration during = Duration.ofSeconds(Long.parseLong(args[3]));
        short replicas = Short.parseShort(args[4]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : SmokeTestDriver.topics())
                topics.add(new NewTopic(name, PARTITIONS, replicas));
            admin.createTopics(topics).all().get();
        }
        System.out.println("TOPICS");
        Map<String, Set<Integer>> written = SmokeTestDriver.generate(bootstrap, keys, most, during);
        System.out.println("WRITTEN");
        var verdict = SmokeTestDriver.verify(bootstrap, written, most, true);
        System.out.println(verdict.result());
        System.out.println(verdict.passed() ? "PASSED" : "FAILED");
        System.exit(verdict.passed() ? 0 : 1);
    }
}
