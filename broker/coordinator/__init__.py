"""Coordinator runtime, common to the group, transaction and share coordinators of a broker."""
