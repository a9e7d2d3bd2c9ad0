"""Assignors: who is to read what, as pure functions of a group's members and their topics."""
