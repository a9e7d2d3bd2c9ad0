"""Tests of log/cleaner."""
