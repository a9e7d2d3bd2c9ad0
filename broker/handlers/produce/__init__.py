"""The Produce handler: batch validation, transaction verification and acknowledgements."""
