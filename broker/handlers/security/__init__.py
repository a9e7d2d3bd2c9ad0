"""API handlers for SASL, ACLs, SCRAM credentials and delegation tokens."""
