"""API handlers for SASL and delegation tokens, and those that describe ACLs and SCRAM credentials."""
