"""Deterministic simulator: runs the code of real nodes in virtual time; the same seed gives the same run."""
