"""State of the idempotent and transactional producers of one partition: epochs, sequences, transactions, snapshots."""
