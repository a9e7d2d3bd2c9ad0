"""API handlers: `handle(context, request)` returns the response of a request; `dispatch.api_registry` lists them."""
