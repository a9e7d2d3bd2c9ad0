"""Fuzzing of the parsers of untrusted bytes."""
