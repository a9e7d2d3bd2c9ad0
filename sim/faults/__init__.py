"""What goes wrong in a simulated world, and when."""
