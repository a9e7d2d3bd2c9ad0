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
 * Configurations validated by Kafka's classes. An input line is "broker BASE CONFIGS", "topic BROKER CONFIGS",
 * "group BROKER CONFIGS" or "keys KIND"; configurations are NAME=VALUE&NAME=VALUE in URL encoding, "-" for none. An output
 * line is "ok" and the parsed values as text, or "no" and the error message; for keys it has the definitions.
 */
public class ConfigValidation {
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

    static String values(AbstractConfig config, Map<String, String> configs, Map<String, ConfigDef.ConfigKey> keys) {
        return configs.keySet().stream().map(name -> {
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

    static String validate(String[] w) throws Exception {
        if (w[0].equals("keys")) return keys(w[1]);
        try {
            if (w[0].equals("broker")) {
                Map<String, String> configs = decode(w[2]);
                Map<String, String> all = new LinkedHashMap<>(decode(w[1]));
                all.putAll(configs);
                return "ok " + values(broker(all), configs, AbstractKafkaConfig.CONFIG_DEF.configKeys());
            }
            KafkaConfig config = broker(decode(w[1]));
            Map<String, String> configs = decode(w[2]);
            Properties topicConfigs = new Properties();
            topicConfigs.putAll(configs);
            if (w[0].equals("topic")) {
                LogConfig.validate(Map.of(), configs, config.extractLogConfigMap(), config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
                return "ok " + values(LogConfig.fromProps(config.extractLogConfigMap(), topicConfigs), configs, LogConfig.configKeys());
            }
            GroupConfig.validate(configs, config.groupCoordinatorConfig(), config.shareGroupConfig());
            return "ok " + values(GroupConfig.fromProps(config.extractGroupConfigMap(), topicConfigs), configs, GroupConfig.CONFIG_DEF.configKeys());
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
        for (String line = in.readLine(); line != null; line = in.readLine()) out.println(validate(line.split(" ")));
        out.flush();
    }
}
