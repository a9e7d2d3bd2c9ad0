"""API handlers: `handle(context, request)` returns the response, None, or a job; `dispatch.api_registry` lists them."""
