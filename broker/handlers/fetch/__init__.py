"""The Fetch handler: fetch parameters, reads, delayed fetches and prepared fetches."""
