"""ListGroups (16), v0-5: the groups that this broker coordinates.

Behaviour: v4 filters by state, v5 by group type, both case-insensitively; an unknown name matches no group. While a
coordinator partition is loading the response is COORDINATOR_LOAD_IN_PROGRESS.

Source: ``GroupCoordinatorService.listGroups`` (apache/kafka 4.3.1).
By state: KIP-518; by type: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.handlers.item_results import PendingResults, wait_for_results
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC, SHARE, STREAMS = "classic", "share", "streams"
_STATE_SPELLINGS = {"NotReady": "not_ready"}
"""Group states that a filter spells in another way than the response does, by their spelling in the response."""
_STATES = frozenset(
    {
        "unknown",
        "preparingrebalance",
        "completingrebalance",
        "stable",
        "dead",
        "empty",
        "assigning",
        "reconciling",
        "not_ready",
    }
)
"""Names of group states that a filter may have, in lower case (``GroupState.java``)."""
_TYPES = frozenset({CLASSIC, CONSUMER_PROTOCOL_TYPE, SHARE, STREAMS})


def _recognized_names(names: Iterable[str], known: frozenset[str]) -> Job[set[str]]:
    """Return the names of a filter that are in ``known``, in lower case, as a job; the others are dropped.

    That bounds the memory.
    """
    found: set[str] = set()
    for name in names:
        lower = name.lower()
        if lower in known:
            found.add(lower)
        yield None
    return found


@with_error_response
def handle(context: RequestContext, request: ListGroupsRequest) -> ResponseJob:
    """Return the groups that match the filters and that the client may describe, once their state is committed.

    The whole response is an error without groups if a coordinator partition is loading, or if that commit fails.
    """
    out, waits = ListGroupsResponse(groups=context.response_array()), PendingResults()
    may_all = context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    states = yield from _recognized_names(request.states_filter, _STATES)
    types = yield from _recognized_names(request.types_filter, _TYPES)
    by_state, by_type = len(request.states_filter) > 0, len(request.types_filter) > 0

    def set_error(answer: Any) -> None:
        if isinstance(answer, ProtocolError):
            out.error_code, out.groups = answer.code, []

    for shard in list(context.services.groups.active_shards()):
        machine = state_machine_of(shard)
        rows = chain(
            (
                ListedGroup(g.id, g.protocol_type or "", g.state.value, CLASSIC)
                for g in list(machine.classic_groups.groups.values())
            ),
            (
                ListedGroup(g.id, CONSUMER_PROTOCOL_TYPE, g.state, CONSUMER_PROTOCOL_TYPE)
                for g in machine.list_consumer_groups()
            ),
            (ListedGroup(g.id, SHARE, g.state, SHARE) for g in machine.list_share_groups()),
            (ListedGroup(g.id, STREAMS, g.state, STREAMS) for g in machine.list_streams_groups()),
        )
        for row in rows:
            may_see = may_all or context.may(AclOperation.DESCRIBE, ResourceType.GROUP, row.group_id)
            state = _STATE_SPELLINGS.get(row.group_state, row.group_state.lower())
            if may_see and (not by_state or state in states) and (not by_type or row.group_type in types):
                out.groups.append(row)
            yield None
        pending = shard.read_barrier()
        if pending is not None:
            waits.append((pending, set_error))
    yield from wait_for_results(waits)
    return out
