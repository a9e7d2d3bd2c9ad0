"""Implementations of the interfaces in `ottla.env` on a real machine: clock, files, threads, TCP, TLS, Kerberos."""
