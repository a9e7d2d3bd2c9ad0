"""Kafka client of the command line tools, the brokers and the simulator."""
