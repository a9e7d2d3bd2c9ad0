"""Log compaction (``cleanup.policy=compact``): selection of logs, offset map, rewriting and swapping of segments."""
