"""Tests of `ottla.broker.groups`."""
