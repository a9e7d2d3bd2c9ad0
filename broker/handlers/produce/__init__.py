"""Handler of Produce, with batch validation, transaction verification and acknowledgements."""
