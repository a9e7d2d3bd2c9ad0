import java.io.*;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.*;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Validates settings with Kafka's own classes. A line in: "broker SETTINGS", "topic BROKER SETTINGS",
 * "group BROKER SETTINGS" or "keys KIND", where settings are NAME=VALUE&NAME=VALUE in URL encoding and "-" is none. A
 * line out: "ok" and the parsed values as text, or "no" and the message; for keys the definitions.
 */
public class Settings {
    static String encode(String text) {
        return text == null ? "-" : "=" + URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    static Map<String, String> decode(String text) {
        Map<String, String> out = new LinkedHashMap<>();
        if (text.equals("-")) return out;
        for (String pair : text.split("&")) {
            String[] parts = pair.split("=", 2);
            out.put(URLDecoder.decode(parts[0], StandardCharsets.UTF_8), URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        return out;
    }

    static String values(AbstractConfig config, Map<String, String> asked, Map<String, ConfigDef.ConfigKey> keys) {
        return asked.keySet().stream().map(name -> {
            if (!keys.containsKey(name)) return "?";
            ConfigDef.ConfigKey key = keys.get(name);
            Object value = config.values().get(name);
            if (key.type == ConfigDef.Type.PASSWORD) return value == null ? "-" : encode(((org.apache.kafka.common.config.types.Password) value).value());
            return encode(ConfigDef.convertToString(value, key.type));
        }).collect(Collectors.joining(" "));
    }

    static KafkaConfig broker(Map<String, String> settings) {
        return new KafkaConfig(new HashMap<>(settings), false);
    }

    static String answer(String[] w) throws Exception {
        if (w[0].equals("keys")) return keys(w[1]);
        try {
            if (w[0].equals("broker")) {
                Map<String, String> asked = decode(w[2]);
                Map<String, String> all = new LinkedHashMap<>(decode(w[1]));
                all.putAll(asked);
                return "ok " + values(broker(all), asked, AbstractKafkaConfig.CONFIG_DEF.configKeys());
            }
            KafkaConfig config = broker(decode(w[1]));
            Map<String, String> asked = decode(w[2]);
            Properties own = new Properties();
            own.putAll(asked);
            if (w[0].equals("topic")) {
                LogConfig.validate(Map.of(), asked, config.extractLogConfigMap(), config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
                return "ok " + values(LogConfig.fromProps(config.extractLogConfigMap(), own), asked, LogConfig.configKeys());
            }
            GroupConfig.validate(asked, config.groupCoordinatorConfig(), config.shareGroupConfig());
            return "ok " + values(GroupConfig.fromProps(config.extractGroupConfigMap(), own), asked, GroupConfig.CONFIG_DEF.configKeys());
        } catch (Throwable error) {
            return "no " + encode(error.getMessage());
        }
    }

    static String keys(String kind) {
        Collection<ConfigDef.ConfigKey> keys = switch (kind) {
            case "broker" -> AbstractKafkaConfig.CONFIG_DEF.configKeys().values();
            case "dynamic" -> DynamicConfig.Broker.configKeys().values();
            case "topic" -> LogConfig.configKeys().values();
            default -> GroupConfig.CONFIG_DEF.configKeys().values();
        };
        return keys.stream().map(key -> String.join(" ", key.name, key.type.toString(),
            key.hasDefault() ? encode(ConfigDef.convertToString(key.defaultValue, key.type)) : "required",
            encode(key.validator == null ? null : key.validator.toString() + "/" + key.validator.getClass().getSimpleName()),
            String.valueOf(key.internalConfig))).collect(Collectors.joining("|"));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) out.println(answer(line.split(" ")));
        out.flush();
    }
}
