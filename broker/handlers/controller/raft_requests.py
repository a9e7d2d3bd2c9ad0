"""Requests of the quorum's own: Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1), FetchSnapshot (59),
DescribeQuorum (55), AddRaftVoter (80), RemoveRaftVoter (81), UpdateRaftVoter (82).

They go to this node's raft, leader or not; an answer that names the leader names its address under the listener the
request came in on.

Source: ``ControllerApis.handleRaftRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.requests.error_responses import build_error_response_steps
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ProtocolError


def handle(context: RequestContext, request: Message) -> HandlerResult:
    """Ask this node's raft."""
    return _ask_raft(context, request)


async def _ask_raft(context: RequestContext, request: Message) -> Message:
    try:
        return await context.services.controller.handle_raft_request(request, context.version, context.peer.listener)
    except ProtocolError as error:
        return await context.time_slice.run(build_error_response_steps(context, request, error.code, error.message))
