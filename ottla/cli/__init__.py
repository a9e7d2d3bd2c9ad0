"""Command line of Ottla."""
