"""Commands of ``ottla`` except Kafka's tools: a module with a function ``run`` for each, imported by its name."""
