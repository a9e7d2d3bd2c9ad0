"""One module per API: `handle(context, request)` answers one request. `BROKER_APIS` in `dispatch` lists them."""
