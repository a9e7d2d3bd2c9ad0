"""Handling of Raft requests from other nodes and of DescribeQuorum: from the request message to the response message.

Source: ``KafkaRaftClient.handleRequest``, ``ControllerApis.handleRaftRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.driver.describe_quorum import describe_quorum
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.messages.conversion_types import RaftErrorResponse
from ottla.controller.raft.messages.message_conversion import (
    NODE_ENDPOINTS_MIN_VERSION,
    error_response_message,
    from_message,
    to_fetch_response_message,
    to_response_message,
)
from ottla.controller.raft.messages.voter_message_conversion import to_fetch_snapshot_response
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine import events
from ottla.jobs.time_slice import run_in_background
from ottla.wire.codec.schema import Message
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest


async def handle_raft_request(
    raft: RaftDriver, cluster_id: str, message: Message, version: int, listener: str, now_ms: int
) -> Message:
    """Process a Raft or DescribeQuorum request of a controller, an observer or an admin client; return the response.

    A Fetch or a voter change may wait long. ``cluster_id``: of this node; another one in the request is an error
    response. ``listener``: name of the listener of the request; the leader's endpoint in the response is the one of
    this listener (R-213, R-221). ``now_ms``: wall clock.
    """
    if isinstance(message, DescribeQuorumRequest):
        return await run_in_background(raft.env, describe_quorum(raft, message, version, now_ms))
    request = from_message(message, cluster_id)
    if isinstance(request, RaftErrorResponse):
        machine = raft.machine
        return error_response_message(
            message, request, machine.leader_id, machine.epoch, raft.addresses.endpoint(machine.leader_id, listener)
        )
    if isinstance(message, BeginQuorumEpochRequest) and isinstance(request, events.BeginEpoch):
        named = [ListenerEndpoint(e.name, e.host, e.port) for e in message.leader_endpoints]
        raft.update_leader_endpoints(request.epoch, request.leader_id, *named)
    answered = await raft.handle_request(request)
    answer = answered.response
    leader = raft.addresses.endpoint(answer.leader_id, listener)
    if isinstance(answer, events.RaftFetchSnapshotResponse):
        return to_fetch_snapshot_response(answer, leader=leader, version=version, raw=answered.records)
    if isinstance(answer, events.RaftFetchResponse):
        return to_fetch_response_message(
            answer, log_start=answered.log_start_offset, leader=leader, version=version, records=answered.records
        )
    assert not isinstance(answer, events.KRaftVersionsResponse)
    names = version >= NODE_ENDPOINTS_MIN_VERSION or isinstance(answer, events.VoterChangeResponse)
    return to_response_message(request, answer, leader if names else None)
