"""Cluster metadata on this node, and requests to the active controller, AlterPartition excepted.

The requests: registration of brokers and controllers, heartbeats, producer ids, directories of replicas, forwarded
client requests, and the creation of topics.
"""
