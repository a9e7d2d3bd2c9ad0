"""Group coordinator (classic, consumer, share and streams groups): state machines, records and shards."""
