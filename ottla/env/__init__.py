"""Interfaces of a node to its machine: `Env` (clock, randomness, threads), `Disk`, `Stream`, TLS, Kerberos."""
