"""The Produce handler: batch checks, transaction verification and acknowledgements."""
