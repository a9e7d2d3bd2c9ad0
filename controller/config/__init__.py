"""Definitions of broker, topic and group settings, Kafka's and Ottla's own, and the validation of their values."""
