"""Comparisons with a running Kafka and with its classes."""
