"""Responses of every advertised (API, version) of a node and of Kafka 4.3.1, compared by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.vs_kafka.answer_comparison import (
    AllAnswers,
    collect_all_answers,
    compare_api_answers,
    compare_scenarios,
    differences,
    without_api_list,
)
from compat_tests.vs_kafka.golden_answers import build_recording, load_recording
from compat_tests.vs_kafka.sessions.api_session import APIS_TESTED_ELSEWHERE
from ottla.broker.dispatch.api_registry import BROKER_APIS


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> AllAnswers:
    with KafkaProcess(tmp_path_factory.mktemp("first") / "kafka") as kafka:
        return collect_all_answers(kafka.port)


@pytest.mark.xdist_group(__name__)
def test_responses_of_every_api_version_equal_kafka(tmp_path: Path, kafkas: AllAnswers) -> None:
    with OttlaProcess(tmp_path / "ottla") as node:
        ours = collect_all_answers(node.port)
    requested = {(key, version) for key, version, _, _ in ours.api_answers}
    wanted = {
        (key, version)
        for key, route in BROKER_APIS.items()
        if key not in APIS_TESTED_ELSEWHERE
        for version in range(
            route.min_version if route.oldest_supported is None else route.oldest_supported, route.max_version + 1
        )
    }
    assert requested == wanted
    assert ours.count >= 1100
    found = compare_api_answers(ours.api_answers, kafkas.api_answers)
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:20])
    assert without_api_list(ours.malformed_answers) == without_api_list(kafkas.malformed_answers)
    assert not compare_scenarios(ours.scenario_answers, kafkas.scenario_answers)


@pytest.mark.xdist_group(__name__)
def test_responses_of_two_kafka_nodes_are_equal(tmp_path: Path, kafkas: AllAnswers) -> None:
    with KafkaProcess(tmp_path / "kafka") as other:
        again = collect_all_answers(other.port)
    assert not compare_api_answers(again.api_answers, kafkas.api_answers)
    assert without_api_list(again.malformed_answers) == without_api_list(kafkas.malformed_answers)
    assert not compare_scenarios(again.scenario_answers, kafkas.scenario_answers)


@pytest.mark.xdist_group(__name__)
def test_recorded_responses_equal_those_of_running_kafka(kafkas: AllAnswers) -> None:
    assert build_recording(kafkas) == load_recording(), "run python -m compat_tests.vs_kafka.golden_answers"


def test_differences_of_unequal_responses_are_found() -> None:
    ours = {"error_code": 0, "topics": [{"name": "a", "port": 1}]}
    assert not list(differences(ours, {"error_code": 0, "topics": [{"name": "a", "port": 2}]}))
    assert list(differences(ours, {"error_code": 0, "topics": [{"name": "b", "port": 1}]}))
    assert list(differences(ours, {"error_code": 0, "topics": []}))
