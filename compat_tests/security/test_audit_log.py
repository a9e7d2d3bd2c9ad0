"""Audit log: the authorization lines of a node compared with those of Apache Kafka 4.3.1.

``OTTLA_ACL_CELLS=all`` sends all requests, else each fifth.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from compat_tests.security.acl_matrix import ASKER, AclMatrixClient, acl_sets_for
from compat_tests.security.acl_requests import acl_requests
from compat_tests.security.test_acls_vs_kafka import SETTINGS
from compat_tests.support.processes import KafkaProcess, OttlaProcess

EVERY = 1 if os.environ.get("OTTLA_ACL_CELLS") == "all" else 5
LINE = re.compile(r" (INFO|DEBUG) \S+ (Principal = .*)")
COUNT = re.compile(r" with resourceRefCount = \d+")
LAYOUT = Path(__file__).parent.parent / "java" / "logging" / "log4j2.properties"


class AuditedKafka(KafkaProcess):
    """Apache Kafka with an authorizer that logs all decisions."""

    def command(self) -> list[str]:
        file = self.data_dir.parent / "log4j2.properties"
        file.write_text(LAYOUT.read_text() + "logger.audit.name=kafka.authorizer.logger\nlogger.audit.level=DEBUG\n")
        java, *rest = super().command()
        return [java, f"-Dlog4j2.configurationFile={file}", *rest]


def audit_lines(node: OttlaProcess | KafkaProcess) -> dict[str, str]:
    """Return each line about the client with its first request; the number of references is left out.

    Repetitions are not compared: a node logs a line once a minute.
    """
    steps, out, seen = AclMatrixClient(node.port), dict[str, str](), 0
    steps.prepare()
    for requested in acl_requests()[::EVERY]:
        for name, rules in acl_sets_for(requested):
            if name.rpartition(":")[2] not in ("none", "allow", "denied", "prefix"):
                continue
            steps.call_under(rules, requested)
            lines = node.log.read_text().splitlines()
            for line in lines[seen:]:
                found = LINE.search(line)
                if found is not None and f"from host = {ASKER} " in found[2]:
                    out.setdefault(f"{found[1]} {COUNT.sub('', found[2])}", f"{requested.label}: {name}")
            seen = len(lines)
    return out


@pytest.mark.xdist_group(__name__)
def test_audit_log_of_acl_decisions_equals_kafka(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "ottla", ottla_audit_log="DEBUG", **SETTINGS) as node:
        ours = audit_lines(node)
    with AuditedKafka(tmp_path / "kafka", **SETTINGS) as kafka:
        theirs = audit_lines(kafka)
    different = [f"only ours, {name}: {line}" for line, name in ours.items() if line not in theirs]
    different += [f"only Kafka's, {name}: {line}" for line, name in theirs.items() if line not in ours]
    assert not different, f"{len(different)}\n" + "\n".join(different)
    assert len(ours) >= 40
