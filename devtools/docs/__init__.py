"""Generators of pages and figures of the documentation."""
