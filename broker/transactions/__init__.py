"""Transaction coordinator, its log `__transaction_state`, its marker sender, and transaction verification."""
