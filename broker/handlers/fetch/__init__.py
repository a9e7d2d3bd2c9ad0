"""Handler of Fetch, with its parameters, reads of both tiers, delayed fetches and prepared fetches."""
