"""A node in this process gives Kafka's recorded answers to the whole script, without Java."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from compat_tests.abuse import frames, outcome
from compat_tests.comparing import comparable, in_order, own_apis
from compat_tests.conversation import conversation
from compat_tests.golden import asked, kept, recorded
from compat_tests.raw import RawClient
from compat_tests.scenarios import STORIES, tell
from compat_tests.stage import Stage
from ottla.broker.server.dispatch import BROKER_APIS

AGAIN = "the script has changed: run python -m compat_tests.golden where Java is"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(RawClient, "patience_s", 5.0)
    with ottla.Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.port


class HeldStage(Stage):
    """A stage where each answer must be the recorded one."""

    def __init__(self, port: int, story: str) -> None:
        super().__init__(port)
        self.story, self._left = story, iter(recorded()["told"][story])

    def tell(self, what: str, answer: Any) -> None:
        super().tell(what, answer)
        step, theirs = next(self._left, ["", None])
        assert what == step, f"{self.story}: {AGAIN}"
        assert kept(in_order(answer)) == theirs, f"{self.story}: {what}"


def test_each_api_and_version_answers_as_kafka_did(port: int) -> None:
    theirs = iter(recorded()["talk"])
    count = 0
    for key, version, request, answer in conversation(port):
        which, expected = next(theirs, ["", None])
        assert asked(key, version, request) == which, AGAIN
        assert kept(comparable(key, answer)) == expected, f"{which}: {request}"
        count += 1
    assert next(theirs, None) is None, AGAIN
    assert count > 800


def test_bytes_that_are_no_request_end_as_with_kafka(port: int) -> None:
    theirs = recorded()["abuse"]
    assert [sent.name for sent in frames()] == list(theirs), AGAIN
    for sent in frames():
        ours = own_apis({sent.name: outcome(port, sent)})
        assert ours[sent.name] == theirs[sent.name], sent.name


OF_NEW_GROUPS = [key for key in BROKER_APIS if 68 <= key <= 69 or 76 <= key <= 79 or 83 <= key <= 92]
"""What clients ask of consumer, share and streams groups, and brokers of a share coordinator."""


def test_stories_go_as_with_kafka(port: int) -> None:
    stages: list[HeldStage] = []

    def held(port: int, story: str) -> Stage:
        stages.append(HeldStage(port, story))
        return stages[-1]

    told = tell(port, held)
    assert {name: len(steps) for name, steps in told.items()} == {n: len(s) for n, s in recorded()["told"].items()}
    assert len(told) == len(STORIES)
    assert sum(len(told[name]) for name in told if name.split("_")[0] in ("consumer", "share", "streams")) >= 250
    asked = {each for stage in stages for peer in stage.peers.values() for each in peer.asked}
    wanted = {
        (key, v) for key in OF_NEW_GROUPS for v in range(BROKER_APIS[key].min_version, BROKER_APIS[key].max_version + 1)
    }
    assert wanted <= asked, wanted - asked
