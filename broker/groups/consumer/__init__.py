"""Groups of the consumer protocol (KIP-848), whose assignment the coordinator computes."""
