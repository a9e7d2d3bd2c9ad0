"""Proof against others: stock clients, stock tools, Apache Kafka side by side."""
