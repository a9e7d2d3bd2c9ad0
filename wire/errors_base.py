"""The one exception of this room: bytes that cannot be what they claim to be."""


class WireError(Exception):
    """The peer (or a file) sent bytes that break the format. Ends the connection that sent them, never the node."""
