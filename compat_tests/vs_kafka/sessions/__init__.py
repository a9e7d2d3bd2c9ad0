"""Recorded sessions of requests to Kafka, and their replay."""
