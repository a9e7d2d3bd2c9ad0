"""Verbs of ``ottla cluster`` except ``start`` and ``status``, and requests about open transactions."""
