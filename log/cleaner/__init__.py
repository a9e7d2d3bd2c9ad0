"""Log compaction: selection of logs, offset map, rewriting and swapping of segments."""
