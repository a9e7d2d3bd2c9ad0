"""Scenarios of share groups (KIP-932): records that are acquired, accepted, released and archived."""

from __future__ import annotations

from typing import Any

from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import delete_groups_request, prepare_group
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from compat_tests.vs_kafka.scenarios.share_consumer import (
    ACCEPT,
    GAP,
    HEARTBEAT,
    MEMBERS,
    REJECT,
    RELEASE,
    RENEW,
    RawShareConsumer,
    describe_group,
    describe_offsets,
    heartbeat_request,
    prepare_share_group,
    record_batch,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import delete_records, share_fetch, share_group_heartbeat


def share_refusals(stage: ScenarioSession) -> None:
    """Send requests that a share group rejects."""
    own = stage.topic("share-none", 1)
    g = "share-refusals"
    prepare_group(stage, g, "share.assignment.interval.ms")
    describe_group(stage, g, "nothing")
    describe_group(stage, "", "no name")
    stage.call("nobody's beat", HEARTBEAT, 1, heartbeat_request(g, "a", 5))
    stage.call("nobody leaves", HEARTBEAT, 1, heartbeat_request(g, "a", -1))
    odd: dict[str, Any] = {
        "no group": heartbeat_request("", "a", 0, "share-none"),
        "no id": heartbeat_request(g, "", 0, "share-none"),
        "a long id": heartbeat_request(g, "m" * 37, 0, "share-none"),
        "no names": heartbeat_request(g, "a", 0),
        "an empty list of names": share_group_heartbeat.ShareGroupHeartbeatRequest(g, "a", 0, None, []),
        "no rack": share_group_heartbeat.ShareGroupHeartbeatRequest(g, "a", 0, "", ["share-none"]),
        "an epoch below all": heartbeat_request(g, "a", -2, "share-none"),
    }
    for name, request in odd.items():
        stage.call(name, HEARTBEAT, 1, request)
    describe_group(stage, g, "still nothing")
    a = RawShareConsumer(stage, g, "a", own)
    for name, fields in (
        ("acknowledges in no group", {"group_id": None}),
        ("acknowledges as nobody", {"member_id": None}),
        ("opens by an acknowledgement", {"share_session_epoch": 0}),
        ("acknowledges without a session", {"share_session_epoch": 3}),
        ("closes none by an acknowledgement", {"share_session_epoch": -1}),
    ):
        a.epoch = 0
        a.acknowledge(name, (0, 0, [ACCEPT]), **fields)
    for name, fields in (
        ("fetches in no group", {"group_id": None}),
        ("fetches as nobody", {"member_id": None}),
        ("fetches with an id that is none", {"member_id": "a"}),
        ("fetches with an empty id", {"member_id": ""}),
        ("goes on without a session", {"share_session_epoch": 3}),
        ("closes no session", {"share_session_epoch": -1}),
        ("renews and asks for records", {"is_renew_ack": True, "share_session_epoch": 3}),
        ("asks for no records", {"max_records": 0}),
        ("asks for fewer than none", {"max_records": -1}),
    ):
        a.epoch = 0
        a.fetch(name, **fields)
    describe_offsets(stage, g, "of nothing", "share-none")
    describe_offsets(stage, g, "of nothing at all")
    stage.call("delete nothing", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))


ACKNOWLEDGEMENTS: list[tuple[str, int, int, list[int]]] = [
    ("accepts", 0, 1, [ACCEPT]),
    ("accepts again", 0, 0, [ACCEPT]),
    ("accepts what it has not", 100, 100, [ACCEPT]),
    ("accepts backwards", 3, 2, [ACCEPT]),
    ("has no word for them", 2, 3, []),
    ("has too few words", 2, 4, [ACCEPT, ACCEPT]),
    ("has a word that is none", 2, 2, [9]),
    ("has a negative word", 2, 2, [-1]),
    ("renews without saying so", 2, 2, [RENEW]),
    ("releases and accepts", 2, 4, [RELEASE, ACCEPT, RELEASE]),
    ("refuses", 5, 5, [REJECT]),
    ("says that one is none", 6, 6, [GAP]),
]


def share_records(stage: ScenarioSession) -> None:
    """Acquire records; accept, release, reject and keep them."""
    g = "share-records"
    own = prepare_share_group(stage, g, share_delivery_count_limit="3")
    for first, count in ((0, 4), (4, 2), (6, 8)):
        stage.produce(f"records from {first}", g, record_batch(count, first))
    a = RawShareConsumer(stage, g, "a", own)
    a.join(g)
    describe_group(stage, g, "one member")
    describe_offsets(stage, g, "before anything went out", g)
    a.fetch_until_records("gets at most two of a batch", max_records=2, batch_size=2)
    a.fetch_until_records("gets exactly one", max_records=1, share_acquire_mode=1)
    a.fetch_until_records("gets the rest")
    a.fetch("gets nothing more")
    for name, first, last, types in ACKNOWLEDGEMENTS:
        a.acknowledge(name, (first, last, types))
        if len(types) == 3 or types in ([GAP], [REJECT]):
            describe_offsets(stage, g, f"after it {name}")
    a.acknowledge("speaks of two, one wrong", (7, 7, [ACCEPT]), (200, 200, [ACCEPT]))
    a.acknowledge("speaks in disorder", (8, 8, [ACCEPT]), (7, 7, [ACCEPT]))
    a.acknowledge("speaks of another partition", (7, 7, [ACCEPT]), partition=4)
    a.acknowledge("speaks of another topic", (7, 7, [ACCEPT]), topic=bytes(15) + b"\x63")
    a.acknowledge("speaks of nothing")
    a.acknowledge("renews", (7, 8, [RENEW]), is_renew_ack=True)
    a.acknowledge("renews in an old version", (7, 7, [RENEW]), version=1)
    nothing = {"max_bytes": 0, "max_records": 0, "min_bytes": 0, "batch_size": 0}
    a.fetch("renews with a fetch", (7, 7, [RENEW]), is_renew_ack=True, **nothing)
    a.fetch("renews with a fetch that asks", (7, 7, [RENEW]), is_renew_ack=True)
    a.fetch_until_records("gets what came back, all at once", share_acquire_mode=1)
    a.fetch("accepts with a fetch", (7, 7, [ACCEPT]), version=1)
    a.fetch("says something wrong with a fetch", (7, 7, [RELEASE]))
    a.fetch("asks for a partition that is none", partition=5)
    forgotten = [share_fetch.ForgottenTopic(own, [0])]
    a.fetch("forgets its partition", topics=[], forgotten_topics_data=forgotten)
    a.fetch("has forgotten", topics=[])
    a.fetch("has a wrong epoch", share_session_epoch=77)
    a.fetch("is somebody else", member_id=MEMBERS["b"])
    a.acknowledge("goes, with a last word", (8, 9, [ACCEPT]), share_session_epoch=-1)
    describe_offsets(stage, g, "nobody has anything")
    a.acknowledge("speaks without a session", (10, 10, [ACCEPT]))
    stage.call("a is no one else", HEARTBEAT, 1, heartbeat_request(g, "a", 99))
    stage.call("a leaves", HEARTBEAT, 1, heartbeat_request(g, "a", -1))
    stage.call("a beats", HEARTBEAT, 1, heartbeat_request(g, "a", 3))
    describe_group(stage, g, "empty")


def share_members(stage: ScenarioSession) -> None:
    """Share a partition between two members; records released by one go to the other, until they are archived."""
    g = "share-members"
    own = prepare_share_group(stage, g, share_delivery_count_limit="2")
    for number in range(6):
        stage.produce(f"record {number}", g, record_batch(1, number))
    a, b = RawShareConsumer(stage, g, "a", own), RawShareConsumer(stage, g, "b", own)
    a.join(g)
    a.fetch_until_records("gets all of it")
    b.join(g)
    describe_group(stage, g, "two members")
    b.fetch("opens its session", share_session_epoch=0)
    b.fetch("comes too late")
    b.acknowledge("speaks of what a has", (0, 0, [ACCEPT]))
    a.acknowledge("gives some back", (1, 2, [RELEASE]))
    b.fetch_until_records("gets it")
    a.acknowledge("speaks of what b has", (1, 1, [ACCEPT]))
    b.acknowledge("gives one back, which is given up", (1, 2, [RELEASE, ACCEPT]))
    describe_offsets(stage, g, "one is given up")
    b.fetch("gets nothing of it")
    a.fetch("begins anew with words", (3, 3, [ACCEPT]), share_session_epoch=0)
    a.fetch("begins anew", share_session_epoch=0)
    a.fetch("goes", share_session_epoch=-1, topics=[])
    describe_offsets(stage, g, "a has gone")
    b.fetch_until_records("gets what a had")
    b.acknowledge("accepts all", (0, 0, [ACCEPT]), (3, 5, [ACCEPT]))
    describe_offsets(stage, g, "all is done", g)
    stage.produce("record 6", g, record_batch(1, 6))
    b.fetch_until_records("gets one more")
    gone = stage.clients.pop(b.member_id)
    gone.close()
    a.epoch = 0
    a.fetch_until_records("gets it, since b hung up")
    a.acknowledge("refuses it", (6, 6, [REJECT]))
    describe_offsets(stage, g, "nothing is left")
    stage.call(
        "a wants nothing more",
        HEARTBEAT,
        1,
        share_group_heartbeat.ShareGroupHeartbeatRequest(g, MEMBERS["a"], 99, None, []),
    )
    for identity in "ab":
        stage.call(f"{identity} leaves", HEARTBEAT, 1, heartbeat_request(g, identity, -1))


def share_transactions(stage: ScenarioSession) -> None:
    """Fetch with read_committed from a log whose start was deleted, with the size of each batch."""
    g = "share-rough"
    own = prepare_share_group(stage, g, share_isolation_level="read_committed", share_partition_max_record_locks="100")
    for number in range(12):
        stage.produce(f"ten from {10 * number}", g, record_batch(10, 10 * number))
    a = RawShareConsumer(stage, g, "a", own)
    a.join(g)
    a.fetch_until_records("gets what it may have at once")
    a.fetch("has as much as it may")
    part = delete_records.DeleteRecordsTopic(g, [delete_records.DeleteRecordsPartition(0, 15)])
    stage.call("delete below 15", ApiKey.DELETE_RECORDS, 2, delete_records.DeleteRecordsRequest([part], 10_000))
    describe_offsets(stage, g, "some are deleted")
    a.acknowledge("accepts what is deleted, in part", (10, 19, [ACCEPT]))
    a.acknowledge("accepts what is deleted", (0, 9, [ACCEPT]))
    a.fetch_until_records("asks for more")
    a.acknowledge("gives the rest back", (20, 99, [RELEASE]))
    a.fetch_until_records("gets some of it", max_records=7, batch_size=3)
    a.acknowledge("gives that back, too", (20, 99, [RELEASE]))
    a.fetch_until_records("gets exactly some of it", max_records=7, share_acquire_mode=1)
    a.fetch_until_records("gets a few bytes of it", max_bytes=1)
    a.fetch("goes", share_session_epoch=-1, topics=[])
    describe_offsets(stage, g, "it has gone")
    stage.call("a leaves", HEARTBEAT, 1, heartbeat_request(g, "a", -1))
