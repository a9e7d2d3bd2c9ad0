"""Web console of a broker. Imported only where `ottla.console.listener` is set.

Each page and each change is made of ordinary Kafka requests, which the node's own dispatcher answers with the principal
of the session (`in_process`): permissions, validation and error messages are those of the broker.
"""
