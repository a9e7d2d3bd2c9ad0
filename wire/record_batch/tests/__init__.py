"""Tests of wire/record_batch."""
