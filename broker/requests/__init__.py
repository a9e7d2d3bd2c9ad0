"""Common parts of requests: peers, delayed operations, error responses, the decompression limit."""
