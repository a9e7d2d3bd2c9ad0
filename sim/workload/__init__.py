"""Simulated clients, and what they do."""
