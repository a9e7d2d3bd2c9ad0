"""Tests of log/segment."""
