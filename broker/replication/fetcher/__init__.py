"""Replica fetchers: what a follower asks of a leader, and what it does with the responses."""
