"""Kafka client of tools, nodes and the simulator, with parts that brokers use as servers: SCRAM, JAAS, HTTP."""
