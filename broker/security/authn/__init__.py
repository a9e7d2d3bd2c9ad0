"""Authentication: SASL servers and authenticators, TLS principals, and a listener's security settings."""
