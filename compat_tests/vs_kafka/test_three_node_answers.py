"""Responses of three nodes of Ottla and of three of Apache Kafka 4.3.1, at brokers and at controllers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat_tests.cluster.test_kafka_directory_takeover import to_kafka_nodes
from compat_tests.cluster.test_three_nodes import OttlaFromFile, combined_nodes, running_nodes
from compat_tests.vs_kafka.answer_comparison import differences, normalize_order
from compat_tests.vs_kafka.sessions.three_node_session import NodePorts, RecordedAnswer, run_session

PATIENT = """
controller.quorum.fetch.timeout.ms=20000
broker.session.timeout.ms=60000
log.initial.task.delay.ms=3600000
"""
"""Settings for slow machines and old records.

Elections and fencing are prevented when three nodes are slow on one machine, and so is Kafka's retention, which starts
after half a minute, for records with old timestamps.
"""


def run_new_nodes(nodes: Sequence[OttlaFromFile]) -> list[RecordedAnswer]:
    """Return the responses of three new nodes."""
    places = []
    for node in nodes:
        port = re.search(r"CONTROLLER://127.0.0.1:(\d+)", node.file.read_text())
        assert port is not None
        with node.file.open("a") as file:
            file.write(PATIENT)
        places.append(NodePorts(node.port, int(port[1])))
    with running_nodes(nodes):
        return run_session(places)


@pytest.mark.xdist_group("three-kafkas")
def test_responses_of_three_nodes_equal_kafka(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = run_new_nodes(combined_nodes(tmp_path / "ours"))
    theirs = run_new_nodes(to_kafka_nodes(combined_nodes(tmp_path / "theirs")))
    assert [x.label for x in ours] == [x.label for x in theirs]
    found = [
        f"{a.label}{text}"
        for a, b in zip(ours, theirs, strict=True)
        for text in differences(normalize_order(a.answer), normalize_order(b.answer))
    ]
    assert len(ours) >= 120
    assert not found, f"{len(found)} differences of {len(ours)} answers\n" + "\n".join(found)
