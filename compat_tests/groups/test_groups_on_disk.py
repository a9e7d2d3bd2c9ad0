"""Groups of all four kinds in one data directory: Kafka and Ottla load the same state from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from compat_tests.vs_kafka.answer_comparison import normalize_order
from compat_tests.vs_kafka.scenarios.classic_group_scenarios import subscription
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import (
    offset_commit_request,
    offset_fetch_request,
    prepare_group,
)
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from compat_tests.vs_kafka.scenarios.share_consumer import ACCEPT, RELEASE, RawShareConsumer, record_batch
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    describe_share_group_offsets,
    join_group,
    list_groups,
    sync_group,
)
from ottla.wire.messages import share_group_describe as shd
from ottla.wire.messages import streams_group_describe as std
from ottla.wire.messages import streams_group_heartbeat as sth

TOPIC, CLASSIC, CONSUMER, SHARE, STREAMS = "kept", "of-classic", "of-consumer", "of-share", "of-streams"
LONG_MS = "60000"
"""Timeout that expires no member while the other broker starts: members send no heartbeat once the first has stopped.
"""
DESCRIBES = [
    (ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([CLASSIC])),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, consumer_group_describe.ConsumerGroupDescribeRequest([CONSUMER])),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, shd.ShareGroupDescribeRequest([SHARE])),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 0, std.StreamsGroupDescribeRequest([STREAMS])),
    *((ApiKey.OFFSET_FETCH, 9, offset_fetch_request(group)) for group in (CLASSIC, CONSUMER, STREAMS)),
    (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(SHARE, None)]
        ),
    ),
    (ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest([], [])),
]


def old_member(stage: ScenarioSession) -> None:
    """Create a member of a classic group that has committed."""
    protocols = [join_group.JoinGroupRequestProtocol("range", subscription(TOPIC))]
    request = join_group.JoinGroupRequest(CLASSIC, 300_000, 300_000, "", None, "consumer", protocols)
    request.member_id = stage.call("an id", ApiKey.JOIN_GROUP, 9, request).member_id
    stage.call("joins", ApiKey.JOIN_GROUP, 9, request)
    rows = [sync_group.SyncGroupRequestAssignment(request.member_id, b"what it has")]
    synced = sync_group.SyncGroupRequest(CLASSIC, 1, request.member_id, None, "consumer", "range", rows)
    assert stage.call("syncs", ApiKey.SYNC_GROUP, 5, synced).error_code == 0
    _commits(stage, offset_commit_request(CLASSIC, 1, request.member_id, TOPIC))


def _commits(stage: ScenarioSession, request: Any) -> None:
    answer = stage.call("commits", ApiKey.OFFSET_COMMIT, 9, request)
    assert answer.topics[0].partitions[0].error_code == 0


def new_members(stage: ScenarioSession) -> None:
    """Create two members of a consumer group, one of which revokes a partition for the other."""
    for member, instance in (("a", None), ("b", "static")):
        fields = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            CONSUMER, member, 0, instance, "rack", **fields
        )
        assert stage.call(f"{member} joins", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0
    beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(CONSUMER, "a", 2)
    assert stage.call("a hears of it", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat).error_code == 0
    _commits(stage, offset_commit_request(CONSUMER, 2, "a", TOPIC))


def sharer(stage: ScenarioSession, topic_id: bytes) -> None:
    """Create a member of a share group, with one record accepted and one released."""
    stage.produce("records", TOPIC, record_batch(5))
    one = RawShareConsumer(stage, SHARE, "a", topic_id)
    one.join(TOPIC)
    one.fetch_until_records("gets them")
    answer = one.acknowledge("speaks", (0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT]))
    assert answer.responses[0].partitions[0].error_code == 0
    one.acknowledge("goes", share_session_epoch=-1)


def thread(stage: ScenarioSession) -> None:
    """Create a member of a streams group that has committed."""
    app = sth.Topology(0, [sth.Subtopology("0", [TOPIC])])
    request = sth.StreamsGroupHeartbeatRequest(STREAMS, "t", 0, rebalance_timeout_ms=300_000, topology=app)
    request.process_id, request.active_tasks, request.standby_tasks, request.warmup_tasks = "p", [], [], []
    epoch = stage.call("t joins", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request).member_epoch
    _commits(stage, offset_commit_request(STREAMS, epoch, "t", TOPIC))


def fill(port: int) -> None:
    """Create members of all kinds that stay in their groups."""
    stage = ScenarioSession(port)
    topic_id = stage.topic(TOPIC, 2)
    for group, kind in ((CONSUMER, "consumer"), (SHARE, "share"), (STREAMS, "streams"), (CLASSIC, "consumer")):
        prepare_group(stage, group, f"{kind}.assignment.interval.ms")
        stage.alter_configs(f"{kind} waits", 32, group, (f"{kind}.session.timeout.ms", 0, LONG_MS))
    stage.alter_configs("from its beginning", 32, SHARE, ("share.auto.offset.reset", 0, "earliest"))
    stage.alter_configs("at once", 32, STREAMS, ("streams.initial.rebalance.delay.ms", 0, "0"))
    stage.wait_until_current()
    old_member(stage)
    new_members(stage)
    sharer(stage, topic_id)
    thread(stage)
    assert [text for text, answer in stage.answers if answer == "closed"] == []
    for peer in stage.clients.values():
        peer.close()


def described(port: int) -> dict[str, Any]:
    """Return the description of each group: state, epochs, members with their assignments, offsets."""
    peer = RawClient(port)

    def answer(key: ApiKey, version: int, request: Any) -> Any:
        last: list[Any] = []

        def is_there() -> bool:
            last[:] = [to_json_value(peer.call(key, version, request))]
            text = str(last)
            return not any(f"'error_code': {code}," in text + "," for code in (3, 14, 15, 16))

        wait_until(is_there)
        return last[0]

    answers = {f"{key.name} {at}": answer(key, *rest) for at, (key, *rest) in enumerate(DESCRIBES)}
    for row in answers["DESCRIBE_SHARE_GROUP_OFFSETS 7"]["groups"][0]["topics"]:
        for part in row["partitions"]:
            del part["leader_epoch"]  # each start of a node has its own epoch
    listed = answers["LIST_GROUPS 8"]["groups"]
    listed.sort(key=lambda row: str(row["group_id"]))
    peer.close()
    return answers


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize(("first", "second"), [(OttlaProcess, KafkaProcess), (KafkaProcess, OttlaProcess)])
def test_groups_of_all_kinds_are_described_equally_after_takeover_of_directory(
    data_dir: Path, first: type[NodeProcess], second: type[NodeProcess]
) -> None:
    with first(data_dir) as node:
        fill(node.port)
        answers = described(node.port)
    kinds = [row["group_type"] for row in answers["LIST_GROUPS 8"]["groups"]]
    states = [row["group_state"] for row in answers["LIST_GROUPS 8"]["groups"]]
    assert (kinds, states) == (
        ["classic", "consumer", "share", "streams"],
        ["Stable", "Reconciling", "Stable", "Stable"],
    )
    (place,) = [
        x for x in answers["DESCRIBE_SHARE_GROUP_OFFSETS 7"]["groups"][0]["topics"][0]["partitions"] if x["lag"] > 0
    ]
    assert (place["partition_index"], place["start_offset"], place["lag"]) == (0, 1, 3)
    for kind in (second, first):
        with kind(data_dir) as node:
            assert normalize_order(described(node.port)) == normalize_order(answers), kind.__name__
