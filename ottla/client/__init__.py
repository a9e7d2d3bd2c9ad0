"""Our own client: what tools, brokers and the simulator speak with."""
