"""One segment of a log: its batches, its offset, time and transaction index."""
