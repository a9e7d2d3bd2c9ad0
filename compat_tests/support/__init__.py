"""Processes, jars and clients for the tests of compatibility."""
