"""Handlers of the controller listener; `CONTROLLER_APIS` in `dispatch.api_registry` lists them."""
