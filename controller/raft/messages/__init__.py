"""Raft's events as Kafka's messages, and back."""
