"""Schemas of keys and values: Avro and Protobuf, from files or a schema registry."""
