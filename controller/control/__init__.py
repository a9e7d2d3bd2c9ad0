"""Decisions of the active controller on requests and in periodic tasks: functions that return records to append.

Also the soft state for them: heartbeats and sessions of brokers, and probes of fast fencing.
"""
