"""Host names and addresses in Kafka's forms."""

from __future__ import annotations

import ast
import socket
from pathlib import Path

import pytest
import trio

from ottla.env.env import Network
from ottla.env.hosts import canonical_host, format_address, shift_port, unmap_ipv4
from ottla.runtime.blocking_env import BlockingNetwork
from ottla.runtime.real_env import RealEnv

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.mark.behaviour("S-336")
@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1:20%eth0", "fe80:0:0:0:0:0:1:20%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        (bytes([10, 0, 0, 1]), "10.0.0.1"),
        (bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "10.0.0.1"),
        (bytes(15) + b"\x01", "0:0:0:0:0:0:0:1"),
        ("no:address", "no:address"),
    ],
)
def test_canonical_host_equals_host_in_acls(address: str | bytes, text: str) -> None:
    assert canonical_host(address) == text


@pytest.mark.behaviour("S-336")
def test_canonical_host_of_ipv4_client_on_dual_stack_listener_is_ipv4() -> None:
    """Otherwise an ACL that denies 127.0.0.1 would not match it."""
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::", 0))
        listener.listen(1)
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            accepted, _ = listener.accept()
            with accepted:
                assert canonical_host(accepted.getpeername()[0]) == "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "text"),
    [("127.0.0.1", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("fe80::1%eth0", "fe80::1%eth0")],
)
def test_unmap_ipv4_returns_ipv4_address(address: str, text: str) -> None:
    assert unmap_ipv4(address) == text


@pytest.mark.parametrize(
    ("host", "text"), [("a", "a:1"), ("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1"), ("fe80::1%e", "[fe80::1%e]:1")]
)
def test_format_address_writes_ipv6_in_brackets(host: str, text: str) -> None:
    assert format_address(host, 1) == text


def test_connection_to_dual_stack_listener_has_ipv4_addresses_at_both_ends() -> None:
    async def connected(net: Network) -> list[tuple[str, str]]:
        listener = await RealEnv().net.listen("::", 0)
        client = await net.connect("::ffff:127.0.0.1", listener.port)
        accepted = await listener.accept()
        found = [(stream.peer, stream.local[0]) for stream in (client, accepted)]
        for closed in (client, accepted, listener):
            closed.close()
        return found

    for net in (RealEnv().net, BlockingNetwork()):
        assert trio.run(connected, net) == [("127.0.0.1", "127.0.0.1")] * 2


def _writes_address(node: ast.AST) -> bool:
    """Return True if an expression joins a host and a port itself."""
    if isinstance(node, ast.JoinedStr):
        for host, colon, _ in zip(node.values, node.values[1:], node.values[2:], strict=False):
            if isinstance(colon, ast.Constant) and colon.value == ":" and isinstance(host, ast.FormattedValue):
                return ast.unparse(host.value).endswith("host")
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and "%s:%d" in node.value
    return isinstance(node, ast.Subscript) and ast.unparse(node).endswith(("getpeername()[0]", "getsockname()[0]"))


def test_modules_format_addresses_with_hosts_functions_only() -> None:
    """Otherwise an address would have another form somewhere: a mapped IPv4 address, or no brackets."""
    found = []
    for package in ("wire", "log", "controller", "broker", "ottla"):
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts and path.name != "hosts.py":
                text = path.read_text().replace("canonical_host(sock.getpeername()[0])", "None")
                text = text.replace("canonical_host(probe.getsockname()[0])", "None")
                found += [f"{path}:{x.lineno}" for x in ast.walk(ast.parse(text)) if _writes_address(x)]  # type: ignore[attr-defined]
    assert found == []


@pytest.mark.parametrize(
    ("address", "shifted"),
    [
        *(("127.0.0.1:9404", "127.0.0.1:9406"), ("[::1]:9404", "[::1]:9406"), (":9404", ":9406")),
        *((text, text) for text in ("127.0.0.1:0", "9404", "h", "h:x", "h:\u0664", "")),
    ],
)
def test_shift_port_leaves_other_texts_unchanged(address: str, shifted: str) -> None:
    assert shift_port(address, 2) == shifted
