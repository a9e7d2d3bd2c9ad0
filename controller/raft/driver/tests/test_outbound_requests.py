"""Requests to other controllers, and the events of their responses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.raft.driver.outbound_requests import RaftRequestSender
from ottla.controller.raft.driver.raft_channel import PeerConnectionRefusedError, UnsupportedByPeer
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import OutboundRequest, ReplicaKey, Vote
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import vote

ENDS = (ListenerEndpoint("CONTROLLER", "h1", 9093),)
VOTE_REQUEST = Vote(3, ReplicaKey(1, b"1" * 16), 2, 10, None, True)


class FakeRaftChannel:
    """Channel that records requests, to be answered by the test."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def send(self, to: int, key: Any, encode: Any, done: Callable[[Any], None]) -> None:
        self.callbacks.append(done)


@pytest.fixture
def received_events() -> list[events.RaftEvent]:
    return []


@pytest.fixture
def sender(received_events: list[events.RaftEvent]) -> RaftRequestSender:
    env: Any = None
    identity = MetaProperties("ours", 1, b"1" * 16)
    out = RaftRequestSender(
        env, identity, QuorumConfig("CONTROLLER", ENDS), lambda _: ("h2", 9), lambda *_: None, received_events.append
    )
    channel: Any = FakeRaftChannel()
    out._channel = channel
    return out


def send_and_receive(sender: RaftRequestSender, answer: Any) -> None:
    """Send a vote request to node 2 and deliver the response."""
    channel: Any = sender._channel
    sender.send(OutboundRequest(2, VOTE_REQUEST), ReplicaKey(2, b"2" * 16))
    channel.callbacks.pop()(answer)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (OSError("broken"), [events.RequestFailed(2, VOTE_REQUEST)]),
        (
            PeerConnectionRefusedError("refused"),
            [events.PeerConnectionRefused(2), events.RequestFailed(2, VOTE_REQUEST)],
        ),
        (UnsupportedByPeer("too old"), [events.RequestRejected(2, VOTE_REQUEST, ErrorCode.UNSUPPORTED_VERSION)]),
        (
            vote.VoteResponse(ErrorCode.INVALID_REQUEST),
            [events.RequestRejected(2, VOTE_REQUEST, ErrorCode.INVALID_REQUEST)],
        ),
        (vote.VoteResponse(9999), [events.RequestRejected(2, VOTE_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)]),
    ],
)
def test_request_sender_failed_request_becomes_event(
    sender: RaftRequestSender, received_events: list[events.RaftEvent], answer: Any, wanted: list[events.RaftEvent]
) -> None:
    send_and_receive(sender, answer)
    assert received_events == wanted


def test_request_sender_inconsistent_cluster_id_is_logged_once(
    sender: RaftRequestSender, received_events: list[events.RaftEvent], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            send_and_receive(sender, vote.VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert caplog.messages == [
        "INCONSISTENT_CLUSTER_ID: the controller at h2:9 belongs to another cluster; this node has cluster id ours"
    ]
    assert received_events == [events.RequestRejected(2, VOTE_REQUEST, ErrorCode.INCONSISTENT_CLUSTER_ID)] * 3
