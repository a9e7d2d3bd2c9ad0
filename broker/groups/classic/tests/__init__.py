"""Tests of `ottla.broker.groups.classic`."""
