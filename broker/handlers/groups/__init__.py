"""API handlers for FindCoordinator, classic, consumer and streams groups, and lists and deletion of all groups."""
