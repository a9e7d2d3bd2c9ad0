"""One module per API: `handle(context, request)` answers one request. `dispatch.dispatcher.BROKER_APIS` lists the APIs."""
