"""Handlers of APIs: `handle(context, request)` answers a request; `dispatch.api_registry` names the modules."""
