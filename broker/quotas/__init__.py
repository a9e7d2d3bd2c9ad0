"""Quotas: client byte rates, request time, connections, controller mutations and replication."""
