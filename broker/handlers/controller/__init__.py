"""Handlers for the controller listener only; `CONTROLLER_APIS` in `dispatch.api_registry` names all that it uses."""
