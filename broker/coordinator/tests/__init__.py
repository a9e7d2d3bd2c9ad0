"""Tests of `ottla.broker.coordinator`."""
