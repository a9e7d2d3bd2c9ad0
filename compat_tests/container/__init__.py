"""The entry point of Ottla's container image, run as plain processes with the environment of compose files."""
