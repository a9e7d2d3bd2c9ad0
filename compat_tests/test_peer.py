"""Every advertised (API, version) is asked of a node and of a real Kafka 4.3.1; answers are compared by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.cluster import KafkaProcess, OttlaProcess
from compat_tests.comparing import Everything, compare, compare_stories, differences, everything, own_apis
from compat_tests.conversation import ASKED_ELSEWHERE
from compat_tests.golden import recorded, recording
from ottla.broker.server.dispatch import BROKER_APIS


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    with KafkaProcess(tmp_path_factory.mktemp("first") / "kafka") as kafka:
        return everything(kafka.port)


@pytest.mark.xdist_group(__name__)
def test_every_answer_is_kafkas(tmp_path: Path, kafkas: Everything) -> None:
    with OttlaProcess(tmp_path / "ottla") as node:
        ours = everything(node.port)
    asked = {(key, version) for key, version, _, _ in ours.talk}
    wanted = {
        (key, version)
        for key, route in BROKER_APIS.items()
        if key not in ASKED_ELSEWHERE
        for version in range(
            route.min_version if route.oldest_supported is None else route.oldest_supported, route.max_version + 1
        )
    }
    assert asked == wanted
    assert ours.count >= 1100
    found = compare(ours.talk, kafkas.talk)
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:20])
    assert own_apis(ours.abuse) == own_apis(kafkas.abuse)
    assert not compare_stories(ours.told, kafkas.told)


@pytest.mark.xdist_group(__name__)
def test_the_same_script_finds_two_kafkas_alike(tmp_path: Path, kafkas: Everything) -> None:
    with KafkaProcess(tmp_path / "kafka") as other:
        again = everything(other.port)
    assert not compare(again.talk, kafkas.talk)
    assert own_apis(again.abuse) == own_apis(kafkas.abuse)
    assert not compare_stories(again.told, kafkas.told)


@pytest.mark.xdist_group(__name__)
def test_the_recorded_answers_are_what_this_kafka_says(kafkas: Everything) -> None:
    assert recording(kafkas) == recorded(), "run python -m compat_tests.golden"


def test_the_comparison_sees_a_difference() -> None:
    ours = {"error_code": 0, "topics": [{"name": "a", "port": 1}]}
    assert not list(differences(ours, {"error_code": 0, "topics": [{"name": "a", "port": 2}]}))
    assert list(differences(ours, {"error_code": 0, "topics": [{"name": "b", "port": 1}]}))
    assert list(differences(ours, {"error_code": 0, "topics": []}))
