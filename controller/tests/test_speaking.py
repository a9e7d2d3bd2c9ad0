"""What a node says to the other controllers and hears from them, as its raft machine is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.controller.raft import events
from ottla.controller.raft.events import ReplicaKey, Send, Vote
from ottla.controller.raft.peers import Gone, Unspoken
from ottla.controller.raft.speaking import Speaking
from ottla.log.directory import MetaProperties
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import vote

ENDS = (Endpoint("CONTROLLER", "h1", 9093),)
ASK = Vote(3, ReplicaKey(1, b"1" * 16), 2, 10, None, True)


class Line:
    """Requests that were handed over, to be answered by hand."""

    def __init__(self) -> None:
        self.done: list[Callable[[Any], None]] = []

    def ask(self, to: int, key: Any, encode: Any, done: Callable[[Any], None]) -> None:
        self.done.append(done)


@pytest.fixture
def heard() -> list[events.Event]:
    return []


@pytest.fixture
def speaking(heard: list[events.Event]) -> Speaking:
    env: Any = None
    identity = MetaProperties("ours", 1, b"1" * 16)
    out = Speaking(env, identity, QuorumConfig("CONTROLLER", ENDS), lambda _: ("h2", 9), lambda *_: None, heard.append)
    line: Any = Line()
    out._peers = line
    return out


def say(speaking: Speaking, answer: Any) -> None:
    """Ask node 2, which answers so."""
    line: Any = speaking._peers
    speaking.say(Send(2, ASK), ReplicaKey(2, b"2" * 16))
    line.done.pop()(answer)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (OSError("broken"), [events.Unreachable(2, ASK)]),
        (Gone("refused"), [events.Gone(2), events.Unreachable(2, ASK)]),
        (Unspoken("too old"), [events.Refused(2, ASK, ErrorCode.UNSUPPORTED_VERSION)]),
        (vote.VoteResponse(ErrorCode.INVALID_REQUEST), [events.Refused(2, ASK, ErrorCode.INVALID_REQUEST)]),
        (vote.VoteResponse(9999), [events.Refused(2, ASK, ErrorCode.UNKNOWN_SERVER_ERROR)]),
    ],
)
def test_what_is_no_answer_is_told_for_what_it_is(
    speaking: Speaking, heard: list[events.Event], answer: Any, wanted: list[events.Event]
) -> None:
    say(speaking, answer)
    assert heard == wanted


def test_that_the_others_are_of_another_cluster_is_said_once(
    speaking: Speaking, heard: list[events.Event], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            say(speaking, vote.VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert caplog.messages == [
        "the controller at h2:9 is of another cluster: this node's data directory is of cluster ours"
    ]
    assert heard == [events.Refused(2, ASK, ErrorCode.INCONSISTENT_CLUSTER_ID)] * 3
