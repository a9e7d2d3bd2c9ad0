"""Tests of log/recovery."""
