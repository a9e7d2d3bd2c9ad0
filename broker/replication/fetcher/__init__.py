"""Replica fetchers: Fetch requests of followers to leaders, and application of the responses to the follower logs."""
