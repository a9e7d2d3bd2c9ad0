"""API handlers for topics, configurations, log directories, cluster metadata, client quotas and client metrics."""
