"""Group coordinator (classic, consumer, share and streams groups): its state machine, its records and its assignors."""
