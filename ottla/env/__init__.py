"""Interfaces of a node to its machine: `Env` (clock, randomness, threads), `Disk`, `Stream`, TLS, Kerberos.

Also the disk in memory for simulations, and the text forms of host addresses and log records.
"""
