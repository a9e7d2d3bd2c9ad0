"""Result types of the conversion of Raft messages: decoded response, and error for a whole request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.controller.limits import MAX_QUORUM_REQUEST_ITEMS
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import AnyRaftResponse
from ottla.wire.codec.schema import Opaque
from ottla.wire.errors import ErrorCode

_CODES = frozenset(ErrorCode)
TOO_MANY_LISTED_MESSAGE = f"At most {MAX_QUORUM_REQUEST_ITEMS} endpoints or candidates are taken."


class RaftErrorResponse(NamedTuple):
    """Error for a whole request or response, found in the conversion: the state machine gets no request."""

    error: ErrorCode
    message: str | None = None
    """Error message for admin clients; not sent to other nodes."""


class DecodedRaftResponse(NamedTuple):
    """Response to a request of this node, with the endpoint of the leader in it and the fetched bytes."""

    response: AnyRaftResponse
    leader_endpoint: ListenerEndpoint | None = None
    records: Opaque = None


def error_code_of(code: int) -> ErrorCode:
    """Return the error code; an unknown code of a newer Kafka becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def find_leader_endpoint(nodes: Sequence[Any], leader_id: int, listener: str) -> ListenerEndpoint | None:
    """Return the leader's endpoint from a response's node endpoints, named ``listener``; None if absent."""
    return next((ListenerEndpoint(listener, n.host, n.port) for n in nodes if n.node_id == leader_id), None)
