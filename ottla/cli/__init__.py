"""Command line of Ottla: the commands ``ottla NAME``, and Apache Kafka's tools as ``ottla kafka-NAME``."""
