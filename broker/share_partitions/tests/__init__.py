"""Tests of `ottla.broker.share_partitions`."""
