"""Iteration orders of Java's hash tables and priority queue, on which Kafka's assignors depend."""
