"""The Fetch handler: reads, delayed fetches and what the reader may see."""
