"""Programs of stock clients in several languages, and tests that run them."""
