"""Schemas by which the console decodes keys and values: Avro and Protobuf from files, also JSON from a registry."""
