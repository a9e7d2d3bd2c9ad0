package ottla.spark;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Answers to missing offsets and damaged batches. */
final class DataLoss {
    private static final Logger LOG = LoggerFactory.getLogger("ottla.spark");

    private DataLoss() {}

    static void report(String message, LogOptions options) {
        if (options.failOnDataLoss) {
            throw new LogSourceException(message + "; set the option failOnDataLoss to false to read what is there");
        }
        LOG.warn(message);
    }

    static void reportDamage(String message, LogOptions options) {
        if (!options.skipDamagedBatches) {
            throw new LogSourceException(message + "; set the option skipDamagedBatches to true to read on behind it");
        }
        LOG.warn(message);
    }

    static void warn(String message) {
        LOG.warn(message);
    }
}
