"""Ottla: Apache Kafka's wire protocol, storage format and cluster rules, in readable Python on trio."""

__version__ = "0.1.0"
