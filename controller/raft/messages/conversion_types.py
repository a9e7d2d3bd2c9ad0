"""Results of the conversion of Raft messages (decoded response, error for a whole request), and parts of them."""

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
    """Error for a whole request, found when it is converted (the state machine does not get it), or in its response."""

    error: ErrorCode
    message: str | None = None
    """Error message for admin clients; not sent to other nodes."""


class DecodedRaftResponse(NamedTuple):
    """Response of another node to this node's request, with the leader's endpoint (or None) and the fetched bytes."""

    response: AnyRaftResponse
    leader_endpoint: ListenerEndpoint | None = None
    records: Opaque = None


def error_code_of(code: int) -> ErrorCode:
    """Return the `ErrorCode` of a number; UNKNOWN_SERVER_ERROR for an unknown one, of a newer Kafka."""
    return ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def find_leader_endpoint(nodes: Sequence[Any], leader_id: int, listener: str) -> ListenerEndpoint | None:
    """Return the leader's endpoint among the node endpoints of a response; None if it is not there.

    ``listener``: name that the result has, as node endpoints have none.
    """
    return next((ListenerEndpoint(listener, n.host, n.port) for n in nodes if n.node_id == leader_id), None)
