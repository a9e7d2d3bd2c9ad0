"""Record batches: batch header, records, control records, compression, message formats 0 and 1."""
