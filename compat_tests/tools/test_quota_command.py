"""``ottla quota`` against a node, compared with the output of Kafka's tool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from compat_tests.support.processes import OTTLA, OttlaProcess, java_tool


def test_ottla_quota_sets_lists_and_removes_quotas(data_dir: Path) -> None:
    with OttlaProcess(data_dir) as node:

        def quota(*arguments: str, status: int = 0) -> str:
            command = [OTTLA, "quota", *arguments, "-b", node.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == status, done.stdout + done.stderr
            assert "Traceback" not in done.stderr
            return done.stdout + done.stderr

        quota("set", "--user", "alice", "--client", "app", "producer_byte_rate=1000", "request_percentage=12.5")
        quota("set", "--any-user", "controller_mutation_rate=3")
        quota("set", "--ip", "10.0.0.7", "connection_creation_rate=20")
        reported = [tuple(row.values()) for row in json.loads(quota("list", "-o", "json"))]
        assert reported == [
            ("", "", "10.0.0.7", "connection_creation_rate", 20),
            ("<default>", "", "", "controller_mutation_rate", 3),
            ("alice", "app", "", "producer_byte_rate", 1000),
            ("alice", "app", "", "request_percentage", 12.5),
        ]
        at = ("--bootstrap-server", node.bootstrap, "--describe", "--entity-type", "users", "--entity-name", "alice")
        theirs = java_tool("kafka.admin.ConfigCommand", *at, "--entity-type", "clients", "--entity-name", "app")
        assert "producer_byte_rate=1000.0" in theirs
        assert "request_percentage=12.5" in theirs
        assert len(json.loads(quota("list", "--user", "alice", "--client", "app", "-o", "json"))) == 2
        quota("remove", "--user", "alice", "--client", "app", "producer_byte_rate")
        quota("remove", "--any-user")
        left = " ".join(quota("list").split()[5:])
        assert left == "10.0.0.7 connection_creation_rate 20 alice app request_percentage 12.5"
        assert "does not have this quota" in quota("remove", "--user", "bob", status=1)
        assert "entity expected" in quota("set", "producer_byte_rate=5", status=1)
        assert "unknown quota: rate" in quota("set", "--user", "bob", "rate=5", status=1)
        assert "producer_byte_rate=NUMBER expected" in quota("set", "--user", "bob", "producer_byte_rate=x", status=1)
        assert "greater than 0" in quota("set", "--user", "bob", "producer_byte_rate=0", status=1)
