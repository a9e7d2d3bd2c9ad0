"""Tests of the real world."""
