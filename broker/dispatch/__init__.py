"""From a frame to its handler: the APIs a listener serves, the context of a request, missing partitions."""
