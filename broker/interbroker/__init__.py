"""Requests to other nodes: channel to the active controller, connections to brokers, credentials, liveness probe.

Replica fetchers and Raft have connections of their own.
"""
