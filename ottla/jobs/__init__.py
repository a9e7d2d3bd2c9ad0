"""Cooperative jobs, bounded concurrency, supervision of tasks, futures of requests, interface of state machines."""
