"""Kafka client used by the command line tools, between nodes, and by the simulator."""
