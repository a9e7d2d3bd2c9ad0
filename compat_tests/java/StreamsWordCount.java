import java.io.FileReader;
import java.io.Reader;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * Word count with Kafka Streams and group.protocol=streams from topic "lines" to topic "counts". Arguments: bootstrap
 * servers, state directory, port of application.server, and optionally a properties file. Prints each state.
 */
public class StreamsWordCount {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("application.id", "words");
        p.put("state.dir", args[1]);
        p.put("application.server", "localhost:" + args[2]);
        p.put("group.protocol", "streams");
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("num.stream.threads", "2");
        p.put("commit.interval.ms", "200");
        p.put("statestore.cache.max.bytes", "0");
        p.put("producer.transaction.timeout.ms", "5000");
        p.put("default.key.serde", Serdes.StringSerde.class.getName());
        p.put("default.value.serde", Serdes.StringSerde.class.getName());
        if (args.length > 3)
            try (Reader overrides = new FileReader(args[3])) {
                p.load(overrides);
            }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("store"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        streams.setStateListener((state, previous) -> System.out.println("STATE " + state));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.sleep(Long.MAX_VALUE);
    }
}
