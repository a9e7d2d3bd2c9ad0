"""Web console of a broker. Imported only if ``ottla.console.listener`` is set.

Each page and each change consists of ordinary Kafka requests, which the node's own dispatcher answers with the
principal of the session (`in_process`): permissions, validation and error messages are those of the broker.
"""
