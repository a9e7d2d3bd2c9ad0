"""Dispatch of request frames to handlers: APIs of a listener, context of a request, logs still being created."""
