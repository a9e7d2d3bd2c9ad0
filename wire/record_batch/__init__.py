"""Record batches: header, records, control records, compression, and the message formats 0 and 1."""
