"""Description of groups and changes of their offsets, for ``ottla group``, ``ottla lag`` and Kafka's group tools."""
