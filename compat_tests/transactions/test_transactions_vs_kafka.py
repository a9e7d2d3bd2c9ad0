"""Comparison of responses about transactions with Kafka 4.3.1, at each transaction.version."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.vs_kafka.answer_comparison import compare_scenarios
from compat_tests.vs_kafka.scenarios.all_scenarios import ScenarioAnswers
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from compat_tests.vs_kafka.scenarios.transaction_scenarios import SCENARIOS


def collect_answers(port: int) -> ScenarioAnswers:
    out = {}
    for name, scenario in SCENARIOS.items():
        stage = ScenarioSession(port)
        scenario(stage)
        out[name] = stage.answers
        for peer in stage.clients.values():
            peer.close()
    return out


@pytest.mark.xdist_group(__name__)
def test_transaction_scenarios_at_each_version_equal_kafka(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "ottla") as node:
        ours = collect_answers(node.port)
    with KafkaProcess(tmp_path / "kafka") as kafka:
        theirs = collect_answers(kafka.port)
    assert sum(len(steps) for steps in theirs.values()) > 350
    assert not compare_scenarios(ours, theirs)
