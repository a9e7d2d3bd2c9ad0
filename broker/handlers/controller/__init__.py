"""What the controller listener answers, one module a way of answering; which, stands in `controller_routes`."""
