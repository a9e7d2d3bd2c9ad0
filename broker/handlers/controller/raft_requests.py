"""Requests of the KRaft quorum, on the controller listener.

Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1), FetchSnapshot (59), DescribeQuorum (55), AddRaftVoter
(80), RemoveRaftVoter (81), UpdateRaftVoter (82).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.requests.peer import wait_while_connected
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message


@with_error_response
def handle(context: RequestContext, request: Message) -> ResponseJob:
    """Submit the request to the Raft node of this process and return its response.

    A Fetch waits for records, at most its maximum wait time. An error is the error response of the API.
    """
    pending = context.services.controller.handle_raft_request(request, context.version, context.peer.listener)
    # a Fetch waits for records until its maximum wait time
    answer: Message = yield wait_while_connected(context.peer, pending) if context.key is ApiKey.FETCH else pending
    return answer
