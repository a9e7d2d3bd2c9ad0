"""``ottla fault partition`` and ``heal`` on the nodes in a directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.cli.tests.command_runs import CommandRun, run_command
from ottla.tools.fault_client import FaultConnection, FaultsDisabled


class FaultListeners:
    """Fault listeners of nodes 1 to 3, and a file of node 4, which was killed; the network that each node was set to.

    Args:
        parent: parent of the data directories.
    """

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.blocked: dict[int, list[str]] = {}
        for node_id in (1, 2, 3, 4):
            (parent / f"node-{node_id}").mkdir(parents=True)
            text = json.dumps({"address": f"127.0.0.1:{node_id}", "token": ""})
            (parent / f"node-{node_id}" / "ottla-faults.json").write_text(text)
        (parent / "node-5").mkdir()

    def call(self, connection: FaultConnection, method: str, path: str, fields: Any = None) -> dict[str, Any]:
        """Answer a request as the node of ``connection``."""
        node_id = int(connection.endpoint()[0].rpartition(":")[2])
        if node_id == 4:
            raise FaultsDisabled("no response")
        if method == "POST":
            assert path == "/network"
            self.blocked[node_id] = fields["blocked"]
        return {"node": node_id, "listeners": [f"h:{node_id}", f"h:{node_id + 10}"]}

    def run(self, *words: str) -> CommandRun:
        """Run ``ottla fault`` for these nodes."""
        return run_command("fault", *words, "--data-dir", f"{self.parent}/")


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[FaultListeners]:
    made = FaultListeners(tmp_path / "data [1]")
    with mock.patch.object(FaultConnection, "call", autospec=True, side_effect=made.call):
        yield made


def test_partition_blocks_the_listeners_of_other_groups_and_ends_an_earlier_one(listeners: FaultListeners) -> None:
    assert listeners.run("partition", "1", "3,2") == (0, b"", "")
    assert listeners.blocked == {1: ["h:3", "h:13", "h:2", "h:12"], 2: ["h:1", "h:11"], 3: ["h:1", "h:11"]}
    assert listeners.run("partition", "2", "3") == (0, b"", "")
    assert listeners.blocked == {1: [], 2: ["h:3", "h:13"], 3: ["h:2", "h:12"]}


def test_heal_removes_the_partition_of_all_running_nodes(listeners: FaultListeners) -> None:
    listeners.run("partition", "1", "2,3")
    assert listeners.run("heal") == (0, b"", "")
    assert listeners.blocked == {1: [], 2: [], 3: []}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["1"], "two groups of node ids or more expected"),
        (["1", "4"], "each node in one group expected, of [1, 2, 3]: [[1], [4]]"),
        (["1,2", "2"], "each node in one group expected, of [1, 2, 3]: [[1, 2], [2]]"),
    ],
)
def test_partition_of_wrong_groups_changes_nothing(listeners: FaultListeners, words: list[str], problem: str) -> None:
    assert listeners.run("partition", *words) == (1, b"", f"ottla fault: {problem}\n")
    assert listeners.blocked == {}


def test_heal_without_nodes_fails(tmp_path: Path) -> None:
    done = run_command("fault", "heal", "--data-dir", str(tmp_path))
    assert done == (1, b"", f"ottla fault: no running node with ottla.faults=true in a directory of {tmp_path}\n")
