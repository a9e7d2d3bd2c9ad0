"""Random and invalid requests and records."""
