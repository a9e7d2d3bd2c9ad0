"""What this node answers to the other controllers' requests, from the message that came to the one that goes.

Source: ``KafkaRaftClient.handleRequest``, ``ControllerApis.handleRaftRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.pacing import paced
from ottla.controller.quorum_config import Endpoint
from ottla.controller.raft import events
from ottla.controller.raft.description import describe
from ottla.controller.raft.shell import Raft
from ottla.controller.raft.wire_form import (
    NAMES_NODES_FROM,
    answer_message,
    fetch_answer_message,
    from_message,
    refusal_message,
)
from ottla.controller.raft.wire_values import Refusal
from ottla.controller.raft.wire_voters import snapshot_answer_message
from ottla.wire.messages import begin_quorum_epoch as b
from ottla.wire.messages import describe_quorum as d
from ottla.wire.schema import Message


async def answer_raft(
    raft: Raft, cluster_id: str, message: Message, version: int, listener: str, now_ms: int
) -> Message:
    """Answer what other controllers, observers and administrators ask of the quorum; it came in on ``listener``.

    The leader that an answer names is named with its address on that listener (R213, R221). ``now_ms``: wall clock.
    """
    if isinstance(message, d.DescribeQuorumRequest):
        return await paced(describe(raft, message, version, now_ms))
    request = from_message(message, cluster_id)
    if isinstance(request, Refusal):
        machine = raft.machine
        return refusal_message(
            message, request, machine.leader_id, machine.epoch, raft.addresses.endpoint(machine.leader_id, listener)
        )
    if isinstance(message, b.BeginQuorumEpochRequest) and isinstance(request, events.BeginEpoch):
        named = [Endpoint(e.name, e.host, e.port) for e in message.leader_endpoints]
        raft.tell(request.epoch, request.leader_id, *named)
    answered = await raft.ask(request)
    answer = answered.answer
    leader = raft.addresses.endpoint(answer.leader_id, listener)
    if isinstance(answer, events.SnapshotAnswer):
        return snapshot_answer_message(answer, leader=leader, version=version, raw=answered.records)
    if isinstance(answer, events.FetchAnswer):
        return fetch_answer_message(
            answer, log_start=answered.log_start_offset, leader=leader, version=version, records=answered.records
        )
    assert not isinstance(answer, events.VersionsAnswer)
    names = version >= NAMES_NODES_FROM or isinstance(answer, events.VoterAnswer)
    return answer_message(request, answer, leader if names else None)
