"""Tests of `ottla.broker.transactions`."""
