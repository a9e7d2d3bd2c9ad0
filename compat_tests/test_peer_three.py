"""Three nodes of ours and three of Apache Kafka 4.3.1 are asked the same, at brokers and at controllers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat_tests.comparing import differences, in_order
from compat_tests.conversation_three import Node, Said, conversation
from compat_tests.test_three_nodes import FromFile, combined, running
from compat_tests.test_three_nodes_taken_over import as_kafka

PATIENT = """
controller.quorum.fetch.timeout.ms=20000
broker.session.timeout.ms=60000
log.initial.task.delay.ms=3600000
"""
"""Nobody is elected anew, or fenced, because three of them are slow on one machine; and Kafka's retention, which begins
half a minute after the start, does not take what is written as of long ago."""


def played(nodes: Sequence[FromFile]) -> list[Said]:
    """What three nodes say, from nothing."""
    places = []
    for node in nodes:
        port = re.search(r"CONTROLLER://127.0.0.1:(\d+)", node.file.read_text())
        assert port is not None
        with node.file.open("a") as file:
            file.write(PATIENT)
        places.append(Node(node.port, int(port[1])))
    with running(nodes):
        return conversation(places)


@pytest.mark.xdist_group("three-kafkas")
def test_three_nodes_answer_as_three_of_kafkas(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = played(combined(tmp_path / "ours"))
    theirs = played(as_kafka(combined(tmp_path / "theirs")))
    assert [x.what for x in ours] == [x.what for x in theirs]
    found = [
        f"{a.what}{text}"
        for a, b in zip(ours, theirs, strict=True)
        for text in differences(in_order(a.answer), in_order(b.answer))
    ]
    assert len(ours) >= 120
    assert not found, f"{len(found)} differences of {len(ours)} answers\n" + "\n".join(found)
