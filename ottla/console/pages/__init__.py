"""Handlers of the web console's pages and changes, which send Kafka requests or read the state of this node."""
