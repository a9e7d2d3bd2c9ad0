"""Groups of Kafka Streams applications (KIP-1071): the coordinator knows the topology, and says who does which task."""
