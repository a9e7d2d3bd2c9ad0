"""The world as interfaces: `Env`, `Disk`, `Stream`, TLS, Kerberos."""
