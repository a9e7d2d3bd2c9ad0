"""Group coordination: the classic group machine, its records, and the shards that append and replay them."""
