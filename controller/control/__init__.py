"""Control areas of the controller: a module per request type or group of requests, which decides on them."""
