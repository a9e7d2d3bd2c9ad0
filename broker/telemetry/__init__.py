"""Clients' own metrics: who shall push which, what they pushed, and how it is shown."""
