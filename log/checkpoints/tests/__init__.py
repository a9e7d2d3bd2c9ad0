"""Tests of log/checkpoints."""
