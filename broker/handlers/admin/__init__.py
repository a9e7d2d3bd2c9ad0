"""API handlers for topics, settings, log directories, the cluster, client quotas and metrics; some only forward."""
