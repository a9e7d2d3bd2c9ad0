"""Fuzzing of the coordinators: drawn records in their internal topics, and drawn requests."""
