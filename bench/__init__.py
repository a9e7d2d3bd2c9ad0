"""Speed against Apache Kafka, side by side in one run."""
