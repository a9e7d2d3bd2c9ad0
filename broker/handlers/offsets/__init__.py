"""Handlers of offsets: listed by time or leader epoch, and committed, fetched and deleted for groups."""
