"""Tests of `ottla.broker.groups.consumer`."""
