"""Decisions of the active controller: a module per request type, with functions that return records to append."""
