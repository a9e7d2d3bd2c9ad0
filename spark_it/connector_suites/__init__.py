"""Test suites of Spark's Kafka connector, run against a broker in a process of its own."""
