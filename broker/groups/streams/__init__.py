"""Streams groups (KIP-1071): groups of Kafka Streams applications with server-side task assignment."""
