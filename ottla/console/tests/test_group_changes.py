"""Groups of the console at other coordinators: error messages, and the plan of a reset of offsets."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.console.offsets import EARLIEST, LATEST, TopicPartitionName
from ottla.console.page import PageRequest
from ottla.console.pages import group_changes, groups
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import describe_groups

OFFSETS = {EARLIEST: {("t", 0): 2}, LATEST: {("t", 0): 9, ("t", 1): 7}}
"""Offsets of partition 1 as if its leader could be reached for the second request only."""


@pytest.mark.parametrize(("target", "offset"), [("earliest", 2), ("latest", 9)])
def test_plan_reset_without_one_offset_of_a_partition_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch, target: str, offset: int
) -> None:
    async def list_offsets(
        client: Any, partitions: Iterable[TopicPartitionName], timestamp: int
    ) -> dict[TopicPartitionName, int]:
        return OFFSETS[timestamp]

    monkeypatch.setattr(group_changes, "list_offsets", list_offsets)
    nothing: Any = None
    page = PageRequest(nothing, nothing, nothing, nothing, {"target": target}, {})
    assert trio.run(group_changes.plan_reset, page, {}, [("t", 0), ("t", 1)]) == {("t", 0): offset}


def test_describe_group_error_of_the_coordinator_keeps_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    class Coordinator:
        async def call(self, request: Any) -> Any:
            if not isinstance(request, describe_groups.DescribeGroupsRequest):
                return SimpleNamespace(groups=[SimpleNamespace(error_code=ErrorCode.GROUP_ID_NOT_FOUND)])
            row = describe_groups.DescribedGroup(ErrorCode.INVALID_GROUP_ID, "no name for a group", "g")
            return describe_groups.DescribeGroupsResponse(groups=[row])

    async def find(page: Any, group: str) -> tuple[int, Any]:
        return 2, Coordinator()

    monkeypatch.setattr(groups, "find_group_coordinator", find)
    nothing: Any = None
    with pytest.raises(ProtocolError, match="group g: no name for a group"):
        trio.run(groups.describe_group, nothing, "g")
