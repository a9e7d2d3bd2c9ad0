"""Segments of a log: batches in a file, with offset, time and transaction index."""
