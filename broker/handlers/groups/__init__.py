"""API handlers for classic, consumer and streams groups."""
