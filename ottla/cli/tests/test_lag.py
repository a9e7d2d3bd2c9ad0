"""``ottla lag``: by topic, by partition, repeated, and as a check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import ottla
from ottla.cli.commands import lag
from ottla.cli.tests.command_runs import CommandRun, run_command
from ottla.tests.test_embedded_api import commit

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    """Broker with a group that has read 1 of 3 and 2 of 2 records of a topic, and 0 of 1 of another."""
    with ottla.Broker() as broker:
        for topic, partitions in (("a", 3), ("b", 1)):
            broker.client.create_topic(topic, partitions)
        for topic, partition, count, offset in (("a", 0, 3, 1), ("a", 1, 2, 2), ("b", 0, 1, 0)):
            broker.produce(topic, *(b"x" for _ in range(count)), partition=partition)
            commit(broker, "readers", topic, partition, offset)
        commit(broker, "second", "b", 0, 1)
        yield broker.bootstrap_servers


def print_lag(node: str, *words: str) -> CommandRun:
    return run_command("lag", *words, "-b", node)


def rows(node: str, *words: str) -> list[dict[str, Any]]:
    done = print_lag(node, *words, "-o", "json")
    assert (done.status, done.err) == (0, ""), done
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_lag_all_groups_is_summed_by_topic(node: str) -> None:
    assert rows(node) == [
        {"group": "readers", "topic": "a", "partitions": 2, "lag": 2, "largest": 2},
        {"group": "readers", "topic": "b", "partitions": 1, "lag": 1, "largest": 1},
        {"group": "second", "topic": "b", "partitions": 1, "lag": 0, "largest": 0},
    ]


def test_lag_partitions_prints_lag_of_each_partition(node: str) -> None:
    assert [
        (x["topic"], x["partition"], x["position"], x["end"], x["lag"]) for x in rows(node, "readers", "--partitions")
    ] == [
        ("a", 0, 1, 3, 2),
        ("a", 1, 2, 2, 0),
        ("b", 0, 0, 1, 1),
    ]


def test_sum_by_topic_ignores_partition_without_position() -> None:
    row = {"group": "g", "topic": "t", "lag": None}
    assert lag.sum_by_topic([row])[0]["lag"] is None
    assert lag.sum_by_topic([row, {**row, "lag": 4}])[0] == {
        "group": "g", "topic": "t", "partitions": 2, "lag": 4, "largest": 4,
    }  # fmt: skip


@pytest.mark.parametrize(("limit", "status", "message"), [(3, 0, ""), (2, 1, "ottla: lag above 2: readers 3\n")])
def test_lag_fail_above_limit_returns_status_1(node: str, limit: int, status: int, message: str) -> None:
    done = print_lag(node, "--fail-above", str(limit))
    assert (done.status, done.err) == (status, message)
    assert done.out.startswith(b"group")


def test_lag_watch_repeats_and_clears_only_a_terminal(node: str) -> None:
    done = print_lag(node, "--watch", "--times", "3", "--interval", "0")
    assert (done.status, done.out.count(b"partitions  lag"), done.out.count(b"\x1b")) == (0, 3, 0)
    with mock.patch("ottla.cli.terminal.StandardOutput.isatty", return_value=True, create=True):
        done = print_lag(node, "--watch", "--times", "2", "--interval", "0")
    assert done.out.count(b"\x1b[H\x1b[2Jgroup") == 2


def test_lag_watch_continues_after_connection_error(node: str) -> None:
    answers = [mock.DEFAULT, ConnectionResetError(104, "Connection reset by peer"), mock.DEFAULT]
    with mock.patch.object(lag, "_lag_rows", side_effect=answers, return_value=[]):
        done = print_lag(node, "--watch", "--times", "3", "--interval", "0")
    assert done.status == 0
    assert done.err.splitlines() == [
        "no groups with committed offsets",
        "ottla lag: Connection reset by peer",
        "no groups with committed offsets",
    ]
