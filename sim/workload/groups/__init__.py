"""Members of the groups of Kafka 4 in a simulated run: what they do, what goes wrong with them, and what must hold."""
