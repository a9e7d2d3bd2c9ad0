"""Tests against other implementations: stock clients, stock tools and Apache Kafka itself."""
