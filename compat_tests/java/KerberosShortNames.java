import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.security.kerberos.*;

/** Prints the short name of each line of a file (rules, tab, principal), "no name", or "no rule" for invalid rules. */
public class KerberosShortNames {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Paths.get(args[1]))) {
            String[] parts = line.split("\t", 2);
            String result;
            try {
                List<String> rules = new ArrayList<>();
                for (String rule : parts[0].split(",")) if (!rule.trim().isEmpty()) rules.add(rule.trim());
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules(args[0], rules);
                try {
                    result = "= " + namer.shortName(KerberosName.parse(parts[1]));
                } catch (Exception error) {
                    result = "no name";
                }
            } catch (Exception error) {
                result = "no rule";
            }
            System.out.println(result);
        }
    }
}
