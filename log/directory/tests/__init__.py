"""Tests of log/directory."""
