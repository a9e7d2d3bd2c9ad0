"""Command line tools of Apache Kafka under their own names, with their options, output and exit statuses."""
