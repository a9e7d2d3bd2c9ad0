"""Tests of clusters, also mixed ones of Kafka and Ottla."""
