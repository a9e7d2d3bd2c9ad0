"""Groups of the consumer protocol (KIP-848), with server-side assignment."""
