"""Every message of Kafka 4.3.1, one module an API; a module is loaded when its API is first used."""
