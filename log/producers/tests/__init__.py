"""Tests of log/producers."""
