"""Cooperative scheduling (jobs that yield to the event loop), supervision of tasks, and replicated state machines."""
