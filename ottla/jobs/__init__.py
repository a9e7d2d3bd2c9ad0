"""Cooperative scheduling (jobs that yield to the event loop), supervision of tasks, interface of state machines."""
