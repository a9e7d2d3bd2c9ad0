"""Tests of our own client."""
