"""Every request under every set of access rules, of a node and of Apache Kafka 4.3.1: equal decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.acl_walk import walk
from compat_tests.cluster import KafkaProcess, OttlaProcess

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}


@pytest.mark.xdist_group("kafka-9093")
def test_rules_decide_as_kafkas_do(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "ottla", **SETTINGS) as node:
        ours = walk(node.port)
    with KafkaProcess(tmp_path / "kafka", **SETTINGS) as kafka:
        theirs = walk(kafka.port)
    assert len(theirs) >= 1200
    different = [f"{what}: {ours[what]}, Kafka {theirs[what]}" for what in theirs if ours[what] != theirs[what]]
    assert not different, f"{len(different)} of {len(theirs)}\n" + "\n".join(different[:30])
