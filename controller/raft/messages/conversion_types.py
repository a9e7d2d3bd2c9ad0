"""Common types of raft message conversion: decoded responses and early errors."""

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
    """An answer for the whole request, before the machine is asked."""

    error: ErrorCode
    message: str | None = None
    """For administrators; not sent to other nodes."""


class DecodedRaftResponse(NamedTuple):
    """An answer to a request of ours, and where the leader it names listens."""

    response: AnyRaftResponse
    leader_endpoint: ListenerEndpoint | None = None
    records: Opaque = None


def error_code_of(code: int) -> ErrorCode:
    """Return the error code; an unknown code of a newer Kafka becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def find_leader_endpoint(nodes: Sequence[Any], leader_id: int, listener: str) -> ListenerEndpoint | None:
    """Return the leader among the nodes of a response."""
    return next((ListenerEndpoint(listener, n.host, n.port) for n in nodes if n.node_id == leader_id), None)
