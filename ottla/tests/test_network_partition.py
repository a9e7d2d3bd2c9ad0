"""Partition of the network between the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.tools.fault_controls import ClusterFaultControls


class PartitionedNode:
    """A node of a cluster, with the addresses that it cannot reach."""

    host, pid = "h", 1

    def __init__(self, node_id: int) -> None:
        self.id, self.port, self.controller_port = node_id, node_id, node_id + 10
        self.blocked: list[str] = []

    @property
    def fault_connection(self) -> PartitionedNode:
        return self

    def call(self, method: str, path: str, fields: dict[str, Any]) -> None:
        self.blocked = fields["blocked"]


class PartitionedCluster(ClusterFaultControls):
    """Three nodes."""

    def __init__(self) -> None:
        self.nodes: list[Any] = [PartitionedNode(node_id) for node_id in (1, 2, 3)]

    def _fault_nodes(self) -> list[Any]:
        return self.nodes


def test_partition_of_the_network_ends_an_earlier_one() -> None:
    cluster = PartitionedCluster()
    cluster.partition({1}, {2, 3})
    assert [node.blocked for node in cluster.nodes] == [
        ["h:2", "h:12", "h:3", "h:13"],
        ["h:1", "h:11"],
        ["h:1", "h:11"],
    ]
    cluster.partition({1}, {2})
    assert [node.blocked for node in cluster.nodes] == [["h:2", "h:12"], ["h:1", "h:11"], []]


@pytest.mark.parametrize("groups", [([1], [9]), ([1, 2], [2, 3])])
def test_partition_of_wrong_nodes_changes_nothing(groups: tuple[list[int], ...]) -> None:
    cluster = PartitionedCluster()
    with pytest.raises(ValueError, match="each node in one group expected"):
        cluster.partition(*groups)
    assert not any(node.blocked for node in cluster.nodes)
