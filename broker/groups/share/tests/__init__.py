"""Tests of `ottla.broker.groups.share`."""
