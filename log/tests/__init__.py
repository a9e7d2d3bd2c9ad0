"""Tests of log."""
