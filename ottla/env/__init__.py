"""Interfaces to the outside: `Env`, `Disk`, `Stream`, TLS, Kerberos."""
