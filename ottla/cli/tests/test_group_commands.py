"""``ottla group``: parsing of partitions and reset targets, and output for each group type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.cli.commands.group import _parser
from ottla.cli.errors import CommandFailed
from ottla.cli.group_admin import description, reset
from ottla.cli.group_admin.offsets import (
    EARLIEST,
    LATEST,
    TopicPartitionKey,
    format_table,
    group_by_topic,
    parse_partitions,
)
from ottla.runtime import blocking_env
from ottla.wire.codec import compiler
from ottla.wire.messages import consumer_group_describe, describe_groups, share_group_describe, streams_group_describe
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
STARTS = {T0: 10, T1: 0, U0: 5}
ENDS = {T0: 100, T1: 50, U0: 5}
TIMESTAMP_OFFSETS = {T0: 42, T1: -1, U0: -1}
NOW_MS = 1_700_000_000_000


class RecordingOffsetLookup:
    """Offset lookup of a fake cluster that records the requested timestamps."""

    def __init__(self) -> None:
        self.times: list[int] = []

    async def __call__(self, places: Iterable[TopicPartitionKey], timestamp: int) -> dict[TopicPartitionKey, int]:
        known = {EARLIEST: STARTS, LATEST: ENDS}.get(timestamp, TIMESTAMP_OFFSETS)
        if known is TIMESTAMP_OFFSETS:
            self.times.append(timestamp)
        return {at: known[at] for at in places}


def targets(
    mode: str,
    value: Any = True,
    have: dict[TopicPartitionKey, int] | None = None,
    wanted: tuple[TopicPartitionKey, ...] = (T0, T1),
) -> Any:
    return blocking_env.run_blocking(
        reset.target_offsets(RecordingOffsetLookup(), reset.ResetTarget(mode, value), wanted, have or {}, NOW_MS)
    )


MODES = [
    # mode, value, positions now -> positions then
    ("to_earliest", True, {}, {T0: 10, T1: 0}),
    ("to_latest", True, {}, {T0: 100, T1: 50}),
    ("to_current", True, {T0: 33}, {T0: 33, T1: 50}),
    ("to_current", True, {T0: 333}, {T0: 333, T1: 50}),  # the current position, even outside the log
    ("to_offset", 20, {}, {T0: 20, T1: 20}),
    ("to_offset", 3, {}, {T0: 10, T1: 3}),  # before the first record
    ("to_offset", 77, {}, {T0: 77, T1: 50}),  # after the last record
    ("shift_by", -5, {T0: 20, T1: 20}, {T0: 15, T1: 15}),
    ("shift_by", -15, {T0: 20, T1: 20}, {T0: 10, T1: 5}),
    ("shift_by", 40, {T0: 20, T1: 20}, {T0: 60, T1: 50}),
    ("to_datetime", "2026-01-31T00:00:00", {}, {T0: 42, T1: 50}),  # no record is that recent: the end
    ("by_duration", "PT1H", {}, {T0: 42, T1: 50}),
    ("from_file", {T0: 5, U0: 7}, {}, {T0: 10, U0: 5}),
]


@pytest.mark.parametrize(("mode", "value", "have", "then"), MODES)
def test_target_offsets_equal_kafkas_tool(
    mode: str, value: Any, have: dict[TopicPartitionKey, int], then: dict[TopicPartitionKey, int]
) -> None:
    assert targets(mode, value, have) == then


def test_target_offsets_shift_without_position_raises_command_failed() -> None:
    with pytest.raises(CommandFailed, match=r"t-1 has no committed offset"):
        targets("shift_by", 1, {T0: 20})


@pytest.mark.parametrize(
    ("mode", "value", "at_ms"),
    [
        ("to_datetime", "1970-01-02T00:00:00.000", 86_400_000),
        ("to_datetime", "1970-01-02T00:00:00.250Z", 86_400_250),
        ("to_datetime", "1970-01-02T00:00:00.000+02:00", 79_200_000),
        ("to_datetime", "1970-01-01T00:00:01.001Z", 1001),  # as seconds in a float it loses a millisecond
        ("to_datetime", "1969-12-31T23:59:59.997Z", -3),  # brokers interpret it as the latest timestamp
        ("by_duration", "P1DT1H", NOW_MS - 90_000_000),
    ],
)
def test_target_offsets_parse_times_as_kafkas_tool(mode: str, value: str, at_ms: int) -> None:
    looks = RecordingOffsetLookup()
    blocking_env.run_blocking(reset.target_offsets(looks, reset.ResetTarget(mode, value), [T0], {}, NOW_MS))
    assert looks.times == [at_ms]


@pytest.mark.parametrize(
    ("mode", "value"), [("to_datetime", "yesterday"), ("by_duration", "1h"), ("by_duration", "PT")]
)
def test_target_offsets_invalid_time_raises_command_failed(mode: str, value: str) -> None:
    with pytest.raises(CommandFailed, match="expected"):
        targets(mode, value)


@pytest.mark.parametrize(("mode", "value"), [("to_datetime", "1969-12-31T23:59:59.750"), ("by_duration", "P25000D")])
def test_target_offsets_before_1970_raises_command_failed_without_lookup(mode: str, value: str) -> None:
    looks = RecordingOffsetLookup()
    with pytest.raises(CommandFailed, match="before 1970"):
        blocking_env.run_blocking(reset.target_offsets(looks, reset.ResetTarget(mode, value), [T0], {}, NOW_MS))
    assert not looks.times


# ---------------------------------------------------------------------- partitions


@pytest.mark.parametrize(
    ("items", "places"),
    [
        (["t"], [T0, T1]),
        (["t:1"], [T1]),
        (["u", "t:1,0"], [T0, T1, U0]),
        (["t", "t:0"], [T0, T1]),
    ],
)
def test_parse_partitions_accepts_topics_and_single_partitions(
    items: list[str], places: list[TopicPartitionKey]
) -> None:
    assert parse_partitions(items, {"t": [0, 1], "u": [0]}) == places


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("v", "topic v does not exist"),
        ("v:0", "topic v does not exist"),
        ("t:2", "partition 2 of topic t does not exist"),
        ("t:x", "expected: t:x"),
        ("t:", "expected: t:"),
    ],
)
def test_parse_partitions_unknown_partition_raises_command_failed(item: str, why: str) -> None:
    with pytest.raises(CommandFailed, match=why):
        parse_partitions([item], {"t": [0, 1]})


def test_parse_offsets_file_of_one_or_several_groups() -> None:
    assert reset.parse_offsets_file("t,0,5\nt,1,6\n\n", ["g"]) == {"g": {T0: 5, T1: 6}}
    assert reset.parse_offsets_file('"g","t",0,5\nh,u,0,6', ["g", "h"]) == {"g": {T0: 5}, "h": {U0: 6}}
    assert reset.parse_offsets_file("h,u,0,6", ["g"]) == {"h": {U0: 6}}


@pytest.mark.parametrize(
    ("line", "groups"), [("t,0,5", ["g", "h"]), ("t,0", ["g"]), ("t,x,5", ["g"]), ("t,0,x", ["g"])]
)
def test_parse_offsets_file_malformed_line_raises_command_failed(line: str, groups: list[str]) -> None:
    with pytest.raises(CommandFailed, match="OFFSET"):
        reset.parse_offsets_file(line, groups)


@pytest.mark.parametrize(
    ("words", "to"),
    [
        (["--to-earliest"], reset.ResetTarget("to_earliest")),
        (["--to-offset", "0"], reset.ResetTarget("to_offset", 0)),
        (["--shift-by", "-3"], reset.ResetTarget("shift_by", -3)),
        (["--from-file", "f"], reset.ResetTarget("from_file", "f")),
    ],
)
def test_parse_target_returns_given_mode(words: list[str], to: reset.ResetTarget) -> None:
    assert reset.parse_target(_parser().parse_args(["reset", "g", *words])) == to


@pytest.mark.parametrize("words", [[], ["--to-earliest", "--to-latest"], ["--to-latest", "--dry-run", "--execute"]])
def test_group_reset_conflicting_options_exit_with_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        _parser().parse_args(["reset", "g", *words])
    assert end.value.code == 2
    assert "ottla group reset --help" in capsys.readouterr().err


def test_group_by_topic_groups_partitions() -> None:
    assert group_by_topic({U0: 3, T1: 2, T0: 1}) == {"t": {0: 1, 1: 2}, "u": {0: 3}}


# ---------------------------------------------------------------------- output


def seen(kind: str, row: Any) -> description.GroupDescription:
    return description.GroupDescription("g", kind, row, 1, None)  # type: ignore[arg-type]


def test_describe_members_classic_returns_assignment_of_leader() -> None:
    assignment = ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("t", [1, 0])])
    raw = (3).to_bytes(2, "big") + bytes(compiler.encode(assignment, 3))
    row = describe_groups.DescribedGroup(group_state="Stable", protocol_type="consumer", protocol_data="range")
    row.members = [
        describe_groups.DescribedGroupMember("m", None, "c", "/h", b"", raw),
        describe_groups.DescribedGroupMember("n", "i", "c", "/h"),
    ]
    group = seen(description.CLASSIC, row)
    assert [x["assignment"] for x in description.describe_members(group)] == [{"t": [0, 1]}, None]
    assert description.partition_owners(group) == {T0: "m", T1: "m"}
    assert description.summarize_group(group)["assignor"] == "range"
    row.protocol_type = "connect"
    assert description.partition_owners(group) == {}


def test_describe_members_malformed_assignment_returns_none() -> None:
    row = describe_groups.DescribedGroup(group_state="Stable", protocol_type="consumer")
    row.members = [describe_groups.DescribedGroupMember("m", None, "c", "/h", b"", b"\0\0\xff\xff\xff\xff\1")]
    assert description.describe_members(seen(description.CLASSIC, row))[0]["assignment"] is None


def test_describe_members_consumer_returns_target_and_current_assignment() -> None:
    has = consumer_group_describe.Assignment([consumer_group_describe.TopicPartitions(topic_name="t", partitions=[1])])
    target = consumer_group_describe.Assignment(
        [consumer_group_describe.TopicPartitions(topic_name="t", partitions=[1, 0])]
    )
    member = consumer_group_describe.Member(
        "m", member_epoch=4, assignment=has, target_assignment=target, member_type=1
    )
    row = consumer_group_describe.DescribedGroup(
        group_state="Reconciling", group_epoch=5, assignment_epoch=5, members=[member]
    )
    (described,) = description.describe_members(seen(description.CONSUMER, row))
    assert (described["epoch"], described["assignment"], described["target"]) == (4, {"t": [1]}, {"t": [0, 1]})
    assert described["protocol"] == "consumer"
    assert (
        description.summarize_group(seen(description.CONSUMER, row))["epoch"],
        description.partition_owners(seen(description.CONSUMER, row)),
    ) == (
        5,
        {T1: "m"},
    )


def test_describe_members_streams_returns_tasks_and_topology() -> None:
    tasks = streams_group_describe.Assignment(
        [streams_group_describe.TaskIds("0", [0, 1])], [streams_group_describe.TaskIds("1", [0])]
    )
    member = streams_group_describe.Member("m", member_epoch=2, process_id="p", assignment=tasks)
    own = [
        streams_group_describe.TopicInfo("g-log-changelog"),
        streams_group_describe.TopicInfo("other-log-changelog"),
        streams_group_describe.TopicInfo("g-kept"),
    ]
    parts = [
        streams_group_describe.Subtopology("0", ["t"], ["g-r-repartition"], own),
        streams_group_describe.Subtopology("1", ["u"]),
    ]
    parts[1].repartition_source_topics = [streams_group_describe.TopicInfo("g-r-repartition")]
    row = streams_group_describe.DescribedGroup(
        group_state="Stable", topology=streams_group_describe.Topology(0, parts), members=[member]
    )
    group = seen(description.STREAMS, row)
    (described,) = description.describe_members(group)
    assert (described["active"], described["standby"], described["target_active"]) == ({"0": [0, 1]}, {"1": [0]}, {})
    assert description.partition_owners(group) == {T0: "m", T1: "m"}
    assert [part["reads"] for part in description.describe_topology(group)] == [["t"], ["u"]]
    assert reset.internal_topics(group) == ["g-log-changelog", "g-r-repartition"]


def test_describe_members_share_returns_assignment() -> None:
    has = share_group_describe.Assignment([share_group_describe.TopicPartitions(topic_name="t", partitions=[0])])
    row = share_group_describe.DescribedGroup(
        members=[share_group_describe.Member("n", assignment=has), share_group_describe.Member("m")]
    )
    assert [(x["member"], x["assignment"]) for x in description.describe_members(seen(description.SHARE, row))] == [
        ("m", {}),
        ("n", {"t": [0]}),
    ]


def test_format_table_shows_partitions_and_omits_empty_columns() -> None:
    rows = [{"a": {"t": [0, 1], "s": [2]}, "b": None, "c": 0}, {"a": {}, "b": "", "c": None}]
    assert format_table(rows) == [{"a": "s:2;t:0,1", "c": 0}, {"a": "-", "c": "-"}]
