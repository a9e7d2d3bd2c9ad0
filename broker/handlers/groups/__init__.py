"""Handlers of classic, consumer and streams groups."""
