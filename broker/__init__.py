"""Broker: listeners, connections, dispatch, request handlers, coordinators and replication, on trio.

Protocol rules are in pure state machines, many of them in this package (`replication.partition_state`, for example).
The other code moves bytes between them, network and disk.
"""
