"""Tests of `ottla.broker`."""
