"""Common parts of requests: clients (peers), delayed operations, error responses, and the decompression limit."""
