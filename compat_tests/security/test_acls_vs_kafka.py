"""Every request under every set of ACLs, of a node and of Apache Kafka 4.3.1: equal decisions.

``OTTLA_ACL_CELLS=all`` sends all of them, some five minutes; else a sample of each tenth.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.security.acl_matrix import run_matrix, run_matrix_as_super_user
from compat_tests.support.processes import KafkaProcess, OttlaProcess

ALL = os.environ.get("OTTLA_ACL_CELLS") == "all"
SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
}


def compare(where: Path, requested: Callable[[int], dict[str, Any]], **more: str) -> int:
    """Send the same requests to both; return the number of cells."""
    with OttlaProcess(where / "ottla", **SETTINGS, **more) as node:
        ours = requested(node.port)
    with KafkaProcess(where / "kafka", **SETTINGS, **more) as kafka:
        theirs = requested(kafka.port)
    different = [f"{name}: {ours[name]}, Kafka {theirs[name]}" for name in theirs if ours[name] != theirs[name]]
    assert not different, f"{len(different)} of {len(theirs)}\n" + "\n".join(different[:30])
    return len(theirs)


@pytest.mark.behaviour("S-343", "P-14")
@pytest.mark.xdist_group(__name__)
def test_authorization_under_acls_equals_kafka(tmp_path: Path) -> None:
    cells = compare(tmp_path, lambda port: run_matrix(port, 1 if ALL else 10))
    assert cells >= (1600 if ALL else 160)


@pytest.mark.skipif(not ALL, reason="one more start of both: OTTLA_ACL_CELLS=all")
@pytest.mark.xdist_group(__name__)
def test_authorization_of_super_user_with_denying_acls_equals_kafka(tmp_path: Path) -> None:
    assert compare(tmp_path, run_matrix_as_super_user, super_users="User:ANONYMOUS") >= 80
