"""Handlers of the web console's pages and changes: each sends Kafka requests and returns a template with values."""
