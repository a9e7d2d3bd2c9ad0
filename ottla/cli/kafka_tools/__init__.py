"""Kafka's command line tools under their own names, with their options, output and exit statuses."""
