"""Text form of IP addresses, as Java writes it (ACLs match hosts by this text), and of ``host:port``.

Source: ``InetAddress.getHostAddress`` as ``StandardAuthorizer.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_host(address: str | bytes) -> str:
    """Return an IP address in Java's form: ``127.0.0.1``, ``0:0:0:0:0:0:0:1``, ``fe80:0:0:0:0:0:0:1%eth0``.

    ``address`` is a text, or 4 or 16 bytes. An IPv4-mapped IPv6 address becomes the IPv4 address. A text that is no
    IPv6 address, such as a host name, is returned unchanged.
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
    groups = ":".join(f"{raw[i] << 8 | raw[i + 1]:x}" for i in range(0, 16, 2))
    return groups if read.scope_id is None else f"{groups}%{read.scope_id}"


def unmap_ipv4(address: str) -> str:
    """Return ``address`` with an IPv4-mapped IPv6 address (``::ffff:a.b.c.d``) replaced by the IPv4 address."""
    return canonical_host(address) if address.startswith("::ffff:") else address


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address, given without them, in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shift_port(address: str, count: int) -> str:
    """Return ``host:port`` with a port that is ``count`` higher; port 0 and a text of another form are unchanged."""
    host, colon, port = address.rpartition(":")
    is_number = colon and port.isascii() and port.isdecimal()
    return f"{host}:{int(port) + count}" if is_number and int(port) else address
