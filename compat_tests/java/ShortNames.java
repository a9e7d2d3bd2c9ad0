import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.security.kerberos.*;

/** For each line of a file, rules and a principal with a tab between: the name Kafka makes of it, or that it makes none. */
public class ShortNames {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Paths.get(args[1]))) {
            String[] parts = line.split("\t", 2);
            String said;
            try {
                List<String> rules = new ArrayList<>();
                for (String rule : parts[0].split(",")) if (!rule.trim().isEmpty()) rules.add(rule.trim());
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules(args[0], rules);
                try {
                    said = "= " + namer.shortName(KerberosName.parse(parts[1]));
                } catch (Exception error) {
                    said = "no name";
                }
            } catch (Exception error) {
                said = "no rule";
            }
            System.out.println(said);
        }
    }
}
