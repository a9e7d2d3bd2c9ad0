"""Assignors of consumer and share groups: pure jobs from members and topics to a target assignment."""
