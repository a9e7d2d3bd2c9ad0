"""State of idempotent and transactional producers of a partition."""
