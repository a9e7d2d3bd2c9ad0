"""What the controller decides: one module for each request."""
