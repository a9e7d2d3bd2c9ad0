"""Control areas of the controller: a module for each request."""
