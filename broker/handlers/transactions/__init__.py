"""API handlers for transactions and producer ids."""
