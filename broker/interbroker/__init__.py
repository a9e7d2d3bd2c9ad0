"""Connections of a node to other nodes, and the liveness probe of brokers."""
