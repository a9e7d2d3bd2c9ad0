"""Tests of `ottla.broker.interbroker`."""
