"""List of connections on the HTTP listener: to which peers it is sent, and the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.broker.network.connection_description import ConnectionDescription
from ottla.broker.network.connection_list import (
    BY_AUTHORIZER,
    BY_OTHER_MACHINE,
    ROWS_OF_A_PIECE,
    refusal,
    render_connections,
)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
def test_list_is_sent_to_the_machine_of_the_node(peer: str) -> None:
    assert refusal(peer, has_authorizer=False) == ""


@pytest.mark.parametrize("peer", ["10.0.0.1", "192.168.7.7", "fe80::1%eth0", "2001:db8::1", "", "nonsense"])
def test_list_is_not_sent_to_another_machine(peer: str) -> None:
    assert refusal(peer, has_authorizer=False) == BY_OTHER_MACHINE


@pytest.mark.parametrize("name", ["forwarded", "via", "x-forwarded-for"])
def test_list_is_not_sent_through_a_proxy_on_the_machine_of_the_node(name: str) -> None:
    assert refusal("127.0.0.1", {"host": "localhost", name: "10.0.0.7"}, has_authorizer=False) == BY_OTHER_MACHINE
    assert refusal("127.0.0.1", {"host": "localhost"}, has_authorizer=False) == ""


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.1"])
def test_list_of_a_node_with_authorizer_is_sent_to_no_peer(peer: str) -> None:
    assert refusal(peer, has_authorizer=True) == BY_AUTHORIZER


class DescribedConnection:
    """Connection of a client with a number in its client id."""

    def __init__(self, number: int) -> None:
        self._client_id = f"client-{number:06}"

    def describe(self, now_ms: float) -> ConnectionDescription:
        names = ("10.0.0.1", "PLAINTEXT", "User:a", self._client_id, "", "Fetch v17")
        return ConnectionDescription(*names, 1.4, True, 0, 0, 0, 0.0, "", None, ("Fetch v17",))

    def byte_counts(self) -> None:
        return None


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_list_of_connections_is_rendered_in_steps_of_bounded_size(count: int) -> None:
    connections: Any = [DescribedConnection(number) for number in reversed(range(count))]
    job = render_connections(3, connections, 0.0)
    steps = 0
    while True:
        try:
            next(job)
            steps += 1
        except StopIteration as end:
            pieces = end.value
            break
    document = json.loads(b"".join(pieces))
    assert document["node_id"] == 3
    assert [row["client_id"] for row in document["connections"]] == [f"client-{n:06}" for n in range(count)]
    assert max(piece.count(b'"client_id"') for piece in pieces) <= ROWS_OF_A_PIECE
    assert steps >= count
