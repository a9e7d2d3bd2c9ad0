"""Quotas: client rates, request time, connections, controller mutations and replication."""
