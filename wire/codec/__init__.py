"""Codecs of messages: primitive types, schema, compiled codecs, and an interpreter as their reference."""
