"""Implementations of the interfaces in `ottla.env` on a real machine, and services for the process of a node.

The services are a cache of modules, settings of the garbage collector, notifications to systemd, and the generation of
certificates.
"""
