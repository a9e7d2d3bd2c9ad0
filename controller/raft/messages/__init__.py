"""Conversion between the Raft state machine's values and Kafka's request and response messages."""
