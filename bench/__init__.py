"""Benchmarks of Ottla and Apache Kafka, in one run."""
