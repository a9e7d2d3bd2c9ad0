"""Handlers of topics, configurations, log directories, the cluster, client quotas and client metrics."""
