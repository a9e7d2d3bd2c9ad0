"""One module an API: `handle(context, request)` answers one request. What is spoken stands in `dispatch.BROKER_APIS`."""
