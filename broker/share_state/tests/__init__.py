"""Tests of `ottla.broker.share_state`."""
