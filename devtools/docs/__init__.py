"""Generators of pages, traces and pictures of the documentation under ``docs/``."""
