"""Cluster metadata on this node, and requests to the active controller."""
