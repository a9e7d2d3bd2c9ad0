"""Segment of a log: its batches and its offset, time and transaction index."""
