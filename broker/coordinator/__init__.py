"""What every coordinator of this node stands on."""
