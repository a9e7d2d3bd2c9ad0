"""Tests of groups with stock clients, and comparisons with Kafka."""
