"""Kafka client of tools, nodes and the simulator; brokers also use its SCRAM, JAAS parser and HTTP client."""
