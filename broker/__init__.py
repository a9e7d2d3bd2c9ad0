"""Broker: listeners, connections, dispatch, request handlers, coordinators and replication, on trio.

Protocol rules are in pure state machines; the code here moves bytes between them, network and disk.
"""
