"""``ottla cluster status``: once and repeatedly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import ottla
from ottla.cli.commands import cluster
from ottla.cli.tests.command_runs import CommandRun, run_command
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(__name__)
ROWS = [{"node": 1, "broker": "alive"}]


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker() as broker:
        yield broker.bootstrap_servers


def print_status(node: str, *words: str) -> CommandRun:
    return run_command("cluster", "status", *words, "-b", node)


def test_cluster_status_watch_repeats_and_clears_only_a_terminal(node: str) -> None:
    once = print_status(node, "-o", "json")
    assert [row["broker"] for row in json.loads(once.out)] == ["alive"]
    watch = ("--watch", "--times", "3", "--interval", "0")
    done = print_status(node, *watch)
    assert (done.status, done.err, done.out.count(b"metadata lag"), done.out.count(b"\x1b")) == (0, "", 3, 0)
    with mock.patch("ottla.cli.terminal.StandardOutput.isatty", return_value=True, create=True):
        assert print_status(node, *watch).out.count(b"\x1b[H\x1b[2Jnode") == 3
        assert b"\x1b" not in print_status(node).out + print_status(node, *watch, "-o", "json").out


def test_cluster_status_watch_continues_while_the_quorum_has_no_leader(node: str) -> None:
    answers: list[Any] = [
        (ROWS, 0, None),
        ([], ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader"),
        ConnectionResetError(104, "Connection reset by peer"),
        (ROWS, 0, None),
    ]
    with mock.patch.object(cluster, "fetch_cluster_status", side_effect=answers):
        done = print_status(node, "--watch", "--times", "4", "--interval", "0")
    assert (done.status, done.out.count(b"alive")) == (0, 2)
    assert done.err.splitlines() == [
        "ottla cluster status: the quorum: no leader",
        "ottla cluster status: Connection reset by peer",
    ]


@pytest.mark.parametrize("watch", [(), ("--watch", "--times", "2")])
def test_cluster_status_with_error_at_first_ends_with_status_1(node: str, watch: tuple[str, ...]) -> None:
    answers: list[Any] = [([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)]
    with mock.patch.object(cluster, "fetch_cluster_status", side_effect=answers):
        done = print_status(node, *watch)
    assert (done.status, done.out) == (1, b"")
    assert done.err == "ottla: the quorum: Cluster authorization failed\n"
