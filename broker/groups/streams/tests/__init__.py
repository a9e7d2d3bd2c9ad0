"""Tests of `ottla.broker.groups.streams`."""
