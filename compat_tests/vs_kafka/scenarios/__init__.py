"""Scripted requests, which are sent to Kafka and to Ottla."""
