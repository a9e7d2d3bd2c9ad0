"""Common parts of requests: clients (peers), purgatory, error responses, decompression limit, forwarded requests."""
