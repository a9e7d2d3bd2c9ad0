"""Messages of Kafka 4.3.1: a module for each API or kind of record, loaded at the first use of one of its classes."""
