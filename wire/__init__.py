"""Kafka's wire and storage formats: messages, record batches, compression and codecs. No I/O, no clock, no trio."""
