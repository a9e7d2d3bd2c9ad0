"""Text form of a peer's address, as Kafka writes it: ACLs name hosts by that text.

Source: ``InetAddress.getHostAddress`` as ``StandardAuthorizer.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_host(address: str | bytes) -> str:
    """``127.0.0.1``, ``0:0:0:0:0:0:0:1``, ``fe80:0:0:0:0:0:0:1%eth0``; an IPv4 address within IPv6 is the IPv4 one.

    ``address``: as the system writes it, or its 4 or 16 bytes. What is no address stays as it is.
    """
    if isinstance(address, str) and ":" not in address:
        return address
    try:
        read = ip_address(address)
    except ValueError:
        return str(address)
    if not isinstance(read, IPv6Address):
        return str(read)
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    raw = read.packed
    words = ":".join(f"{raw[i] << 8 | raw[i + 1]:x}" for i in range(0, 16, 2))
    return words if read.scope_id is None else f"{words}%{read.scope_id}"


def unmap_ipv4(address: str) -> str:
    """Return the local address of a connection as clients see it: without an IPv6 form of an IPv4 address."""
    return canonical_host(address) if address.startswith("::ffff:") else address


def format_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
