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


def test_stories_go_as_with_kafka(port: int) -> None:
    told = tell(port, HeldStage)
    assert {name: len(steps) for name, steps in told.items()} == {n: len(s) for n, s in recorded()["told"].items()}
    assert len(told) == len(STORIES)
