"""Stories of share groups (KIP-932): records that go out, are accepted, come back and are given up."""

from __future__ import annotations

from typing import Any

from compat_tests.consumer_stories import delete, ready
from compat_tests.sharer import (
    ACCEPT,
    BEAT,
    GAP,
    MEMBERS,
    REJECT,
    RELEASE,
    RENEW,
    Sharer,
    batch,
    beat,
    begin,
    look,
    standing,
)
from compat_tests.stage import Stage
from ottla.wire.apis import ApiKey
from ottla.wire.messages import delete_records as dr
from ottla.wire.messages import share_fetch as sf
from ottla.wire.messages import share_group_heartbeat as hb


def share_refusals(stage: Stage) -> None:
    """What a share group does not take."""
    own = stage.topic("share-none", 1)
    g = "share-refusals"
    ready(stage, g, "share.assignment.interval.ms")
    look(stage, g, "nothing")
    look(stage, "", "no name")
    stage.say("nobody's beat", BEAT, 1, beat(g, "a", 5))
    stage.say("nobody leaves", BEAT, 1, beat(g, "a", -1))
    odd: dict[str, Any] = {
        "no group": beat("", "a", 0, "share-none"),
        "no id": beat(g, "", 0, "share-none"),
        "a long id": beat(g, "m" * 37, 0, "share-none"),
        "no names": beat(g, "a", 0),
        "an empty list of names": hb.ShareGroupHeartbeatRequest(g, "a", 0, None, []),
        "no rack": hb.ShareGroupHeartbeatRequest(g, "a", 0, "", ["share-none"]),
        "an epoch below all": beat(g, "a", -2, "share-none"),
    }
    for what, request in odd.items():
        stage.say(what, BEAT, 1, request)
    look(stage, g, "still nothing")
    a = Sharer(stage, g, "a", own)
    for what, fields in (
        ("acknowledges in no group", {"group_id": None}),
        ("acknowledges as nobody", {"member_id": None}),
        ("opens by an acknowledgement", {"share_session_epoch": 0}),
        ("acknowledges without a session", {"share_session_epoch": 3}),
        ("closes none by an acknowledgement", {"share_session_epoch": -1}),
    ):
        a.epoch = 0
        a.says(what, (0, 0, [ACCEPT]), **fields)
    for what, fields in (
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
        a.fetches(what, **fields)
    standing(stage, g, "of nothing", "share-none")
    standing(stage, g, "of nothing at all")
    stage.say("delete nothing", ApiKey.DELETE_GROUPS, 2, delete(g))


WORDS: list[tuple[str, int, int, list[int]]] = [
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


def share_records(stage: Stage) -> None:
    """Records go out, are accepted, given back, refused, kept."""
    g = "share-records"
    own = begin(stage, g, share_delivery_count_limit="3")
    for first, count in ((0, 4), (4, 2), (6, 8)):
        stage.produce(f"records from {first}", g, batch(count, first))
    a = Sharer(stage, g, "a", own)
    a.enters(g)
    look(stage, g, "one member")
    standing(stage, g, "before anything went out", g)
    a.gets("gets at most two of a batch", max_records=2, batch_size=2)
    a.fetches("gets exactly one", max_records=1, share_acquire_mode=1)
    a.fetches("gets the rest")
    a.fetches("gets nothing more")
    for what, first, last, types in WORDS:
        a.says(what, (first, last, types))
        if len(types) == 3 or types in ([GAP], [REJECT]):
            standing(stage, g, f"after it {what}")
    a.says("speaks of two, one wrong", (7, 7, [ACCEPT]), (200, 200, [ACCEPT]))
    a.says("speaks in disorder", (8, 8, [ACCEPT]), (7, 7, [ACCEPT]))
    a.says("speaks of another partition", (7, 7, [ACCEPT]), partition=4)
    a.says("speaks of another topic", (7, 7, [ACCEPT]), topic=bytes(15) + b"\x63")
    a.says("speaks of nothing")
    a.says("renews", (7, 8, [RENEW]), is_renew_ack=True)
    a.says("renews in an old version", (7, 7, [RENEW]), version=1)
    nothing = {"max_bytes": 0, "max_records": 0, "min_bytes": 0, "batch_size": 0}
    a.fetches("renews with a fetch", (7, 7, [RENEW]), is_renew_ack=True, **nothing)
    a.fetches("renews with a fetch that asks", (7, 7, [RENEW]), is_renew_ack=True)
    a.fetches("gets what came back, all at once", share_acquire_mode=1)
    a.fetches("accepts with a fetch", (7, 7, [ACCEPT]), version=1)
    a.fetches("says something wrong with a fetch", (7, 7, [RELEASE]))
    a.fetches("asks for a partition that is none", partition=5)
    forgotten = [sf.ForgottenTopic(own, [0])]
    a.fetches("forgets its partition", topics=[], forgotten_topics_data=forgotten)
    a.fetches("has forgotten", topics=[])
    a.fetches("has a wrong epoch", share_session_epoch=77)
    a.fetches("is somebody else", member_id=MEMBERS["b"])
    a.says("goes, with a last word", (8, 9, [ACCEPT]), share_session_epoch=-1)
    standing(stage, g, "nobody has anything")
    a.says("speaks without a session", (10, 10, [ACCEPT]))
    stage.say("a is no one else", BEAT, 1, beat(g, "a", 99))
    stage.say("a leaves", BEAT, 1, beat(g, "a", -1))
    stage.say("a beats", BEAT, 1, beat(g, "a", 3))
    look(stage, g, "empty")


def share_members(stage: Stage) -> None:
    """Two members share a partition; what one gives back the other gets, until it is given up."""
    g = "share-members"
    own = begin(stage, g, share_delivery_count_limit="2")
    for number in range(6):
        stage.produce(f"record {number}", g, batch(1, number))
    a, b = Sharer(stage, g, "a", own), Sharer(stage, g, "b", own)
    a.enters(g)
    a.gets("gets all of it")
    b.enters(g)
    look(stage, g, "two members")
    b.fetches("opens its session", share_session_epoch=0)
    b.fetches("comes too late")
    b.says("speaks of what a has", (0, 0, [ACCEPT]))
    a.says("gives some back", (1, 2, [RELEASE]))
    b.gets("gets it")
    a.says("speaks of what b has", (1, 1, [ACCEPT]))
    b.says("gives one back, which is given up", (1, 2, [RELEASE, ACCEPT]))
    standing(stage, g, "one is given up")
    b.fetches("gets nothing of it")
    a.fetches("begins anew with words", (3, 3, [ACCEPT]), share_session_epoch=0)
    a.fetches("begins anew", share_session_epoch=0)
    a.fetches("goes", share_session_epoch=-1, topics=[])
    standing(stage, g, "a has gone")
    b.gets("gets what a had")
    b.says("accepts all", (0, 0, [ACCEPT]), (3, 5, [ACCEPT]))
    standing(stage, g, "all is done", g)
    stage.produce("record 6", g, batch(1, 6))
    b.gets("gets one more")
    gone = stage.peers.pop(b.who)
    gone.close()
    a.epoch = 0
    a.gets("gets it, since b hung up")
    a.says("refuses it", (6, 6, [REJECT]))
    standing(stage, g, "nothing is left")
    stage.say("a wants nothing more", BEAT, 1, hb.ShareGroupHeartbeatRequest(g, MEMBERS["a"], 99, None, []))
    for who in "ab":
        stage.say(f"{who} leaves", BEAT, 1, beat(g, who, -1))


def share_transactions(stage: Stage) -> None:
    """What a group that reads what is committed gets of a log whose beginning went, and how much of it at once."""
    g = "share-rough"
    own = begin(stage, g, share_isolation_level="read_committed", share_partition_max_record_locks="100")
    for number in range(12):
        stage.produce(f"ten from {10 * number}", g, batch(10, 10 * number))
    a = Sharer(stage, g, "a", own)
    a.enters(g)
    a.gets("gets what it may have at once")
    a.fetches("has as much as it may")
    part = dr.DeleteRecordsTopic(g, [dr.DeleteRecordsPartition(0, 15)])
    stage.say("delete below 15", ApiKey.DELETE_RECORDS, 2, dr.DeleteRecordsRequest([part], 10_000))
    standing(stage, g, "some are deleted")
    a.says("accepts what is deleted, in part", (10, 19, [ACCEPT]))
    a.says("accepts what is deleted", (0, 9, [ACCEPT]))
    a.fetches("asks for more")
    a.says("gives the rest back", (20, 99, [RELEASE]))
    a.gets("gets some of it", max_records=7, batch_size=3)
    a.says("gives that back, too", (20, 99, [RELEASE]))
    a.gets("gets exactly some of it", max_records=7, share_acquire_mode=1)
    a.gets("gets a few bytes of it", max_bytes=1)
    a.fetches("goes", share_session_epoch=-1, topics=[])
    standing(stage, g, "it has gone")
    stage.say("a leaves", BEAT, 1, beat(g, "a", -1))
