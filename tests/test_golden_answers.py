"""Kafka's recorded responses to the whole script, compared with those of a node in this process, without Java."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from compat_tests.support.raw_client import RawClient
from compat_tests.vs_kafka.answer_comparison import comparable, normalize_order, without_api_list
from compat_tests.vs_kafka.golden_answers import load_recording, request_key, without_variable_fields
from compat_tests.vs_kafka.malformed_frames import exchange, malformed_frames
from compat_tests.vs_kafka.scenarios.all_scenarios import SCENARIOS, run_scenarios
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from compat_tests.vs_kafka.sessions.api_session import run_session
from ottla.broker.dispatch.api_registry import BROKER_APIS

OUTDATED_SCRIPT_MESSAGE = "the script has changed: run python -m compat_tests.vs_kafka.golden_answers where Java is"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(RawClient, "timeout_s", 5.0)
    with ottla.Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.port


class RecordedAnswersSession(ScenarioSession):
    """Session with a comparison of each response with the recorded one."""

    def __init__(self, port: int, scenario: str) -> None:
        super().__init__(port)
        self.scenario, self._remaining = scenario, iter(load_recording()["scenarios"][scenario])

    def record_normalized(self, label: str, answer: Any) -> None:
        super().record_normalized(label, answer)
        step, theirs = next(self._remaining, ["", None])
        assert label == step, f"{self.scenario}: {OUTDATED_SCRIPT_MESSAGE}"
        assert without_variable_fields(normalize_order(answer)) == theirs, f"{self.scenario}: {label}"


def test_responses_of_each_api_version_equal_recording(port: int) -> None:
    theirs = iter(load_recording()["api_responses"])
    count = 0
    for key, version, request, answer in run_session(port):
        which, expected = next(theirs, ["", None])
        assert request_key(key, version, request) == which, OUTDATED_SCRIPT_MESSAGE
        assert without_variable_fields(comparable(key, answer)) == expected, f"{which}: {request}"
        count += 1
    assert next(theirs, None) is None, OUTDATED_SCRIPT_MESSAGE
    assert count > 800


def test_responses_to_malformed_frames_equal_recording(port: int) -> None:
    theirs = load_recording()["malformed_frames"]
    assert [sent.name for sent in malformed_frames()] == list(theirs), OUTDATED_SCRIPT_MESSAGE
    for sent in malformed_frames():
        ours = without_api_list({sent.name: exchange(port, sent)})
        assert ours[sent.name] == theirs[sent.name], sent.name


OF_NEW_GROUPS = [key for key in BROKER_APIS if 68 <= key <= 69 or 76 <= key <= 79 or 83 <= key <= 92]
"""APIs of clients for consumer, share and streams groups, and of brokers for a share coordinator."""


def test_scenario_responses_equal_recording(port: int) -> None:
    stages: list[RecordedAnswersSession] = []

    def held(port: int, scenario: str) -> ScenarioSession:
        stages.append(RecordedAnswersSession(port, scenario))
        return stages[-1]

    answers = run_scenarios(port, held)
    assert {name: len(steps) for name, steps in answers.items()} == {
        n: len(s) for n, s in load_recording()["scenarios"].items()
    }
    assert len(answers) == len(SCENARIOS)
    assert sum(len(answers[name]) for name in answers if name.split("_")[0] in ("consumer", "share", "streams")) >= 250
    requested = {each for stage in stages for peer in stage.clients.values() for each in peer.pending_requests}
    wanted = {
        (key, v) for key in OF_NEW_GROUPS for v in range(BROKER_APIS[key].min_version, BROKER_APIS[key].max_version + 1)
    }
    assert wanted <= requested, wanted - requested
