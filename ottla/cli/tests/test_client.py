"""``ottla client``: the list of a node's connections."""

from __future__ import annotations

import csv
import io
import json
import socket
from collections.abc import Iterator

import pytest

import ottla
from ottla.cli.commands.client import _COLUMNS, parse_connections
from ottla.cli.errors import CommandFailed
from ottla.cli.tests.command_runs import run_command
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def _call(sock: socket.socket, key: ApiKey, version: int, request: Message) -> None:
    """Send a request and read its response."""
    sock.sendall(encode_request(key, version, 1, "probe", request))
    reader = sock.makefile("rb")
    size = int.from_bytes(reader.read(4), "big")
    assert len(reader.read(size)) == size


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """HTTP listener of a node with a connected client, which has sent ApiVersions and Metadata."""
    at = _free_address()
    with ottla.Broker(settings={"ottla.metrics.listener": at}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as sock:
            _call(sock, ApiKey.API_VERSIONS, 3, ApiVersionsRequest("probe-software", "1.2"))
            _call(sock, ApiKey.METADATA, 12, MetadataRequest([]))
            yield at


def test_client_lists_software_address_and_api_versions_of_connections(address: str) -> None:
    done = run_command("client", "--http", address, "-o", "json")
    assert (done.status, done.err) == (0, "")
    (row,) = [row for row in json.loads(done.out) if row["client_id"] == "probe"]
    assert (row["node"], row["address"], row["listener"]) == (1, "127.0.0.1", "PLAINTEXT")
    assert (row["software"], row["principal"]) == ("probe-software 1.2", "User:ANONYMOUS")
    assert row["api_versions"] == ["Metadata v12", "ApiVersions v3"]
    assert row["last_request"] == "Metadata v12"
    assert (row["pending_bytes"], row["throttled_ms"]) == (0, 0)


def test_client_filters_rows_and_prints_other_formats(address: str) -> None:
    done = run_command("client", "--http", address, "--filter", "no such client")
    assert (done.status, done.out, done.err) == (0, b"", "no connections\n")
    done = run_command("client", "--http", address, "--filter", "PROBE", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out.decode())))
    assert [row["address"] for row in rows] == ["127.0.0.1"]
    done = run_command("client", "--http", address, "--filter", "PROBE")
    assert b"Metadata v12, ApiVersions v3" in done.out
    assert done.out.startswith(b"node ")


def test_client_of_a_node_with_authorizer_is_refused_with_the_reason() -> None:
    at = _free_address()
    settings = {
        "ottla.metrics.listener": at,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with ottla.Broker(settings=settings):
        done = run_command("client", "--http", at)
    assert (done.status, done.out) == (1, b"")
    assert done.err.startswith(f"ottla: {at}: ")
    assert "authorizer" in done.err


def test_list_of_connections_is_not_sent_through_a_proxy(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as sock:
        sock.sendall(b"GET /connections HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.0.0.7\r\n\r\n")
        answer = sock.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"probe" not in answer


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"node_id": 1, "connections": [{}]}', b"\xff", b"[" * 10_000])
def test_another_document_is_no_list_of_connections(raw: bytes) -> None:
    with pytest.raises(CommandFailed, match="no list of connections"):
        parse_connections(raw)


@pytest.mark.parametrize(("name", "value"), [("client_id", {}), ("address", 1), ("api_versions", [1]), ("node", "x")])
def test_row_with_another_type_is_no_row_of_a_list_of_connections(name: str, value: object) -> None:
    row = dict.fromkeys(_COLUMNS, "") | {"node": 1, "api_versions": ["Fetch v17"]}
    document = {"node_id": 1, "connections": [row]}
    assert parse_connections(json.dumps(document).encode()) == [row]
    row[name] = value
    with pytest.raises(CommandFailed, match="no list of connections"):
        parse_connections(json.dumps(document).encode())
