"""What every layer needs of a request: its peer, delayed operations, error responses, the decompression limit."""
