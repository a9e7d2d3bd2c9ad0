"""The metadata quorum: who leads, what is committed (pure machine), and the log it is kept in (store)."""
