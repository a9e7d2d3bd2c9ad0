"""Handlers of the controller listener; `dispatch.controller_apis` says which API each one answers."""
