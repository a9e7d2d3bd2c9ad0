"""Definitions of the broker, topic and group settings of Kafka, and the validation of their values."""
