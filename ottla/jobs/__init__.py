"""Cooperative scheduling (jobs that yield to the event loop) and the interface of replicated state machines."""
