"""Handlers of SASL, ACLs, SCRAM credentials and delegation tokens."""
