"""The real machine behind the interfaces of `ottla.env`."""
