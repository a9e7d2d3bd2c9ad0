"""Benchmarks of Ottla, most of them beside Apache Kafka in the same run; each module is a program."""
