"""API handlers for offsets: listed by time or leader epoch; committed, fetched and deleted for groups."""
