"""The cluster's metadata on this node, and what it asks of the controller."""
