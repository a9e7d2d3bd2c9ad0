"""Benchmarks of Ottla, some of them beside Apache Kafka in the same run; most modules are programs."""
