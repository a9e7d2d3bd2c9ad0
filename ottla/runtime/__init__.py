"""Implementations of the interfaces in `ottla.env` on a real machine."""
