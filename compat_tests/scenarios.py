"""Stories of several steps, told to a node over raw connections: what each step answers is compared with Kafka's.

A story is a function of a `Stage`; the ids a node hands out are named in the order they appear, so that two nodes'
answers can be compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from compat_tests.raw import Peer
from ottla.broker.dump import plain
from ottla.wire import compiler
from ottla.wire import records as r
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Codec
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import delete_records as dr
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import describe_configs as dc
from ottla.wire.messages import describe_groups as dg
from ottla.wire.messages import fetch as f
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import incremental_alter_configs as ia
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import list_offsets as lo
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_delete as od
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import offset_for_leader_epoch as ole
from ottla.wire.messages import produce as p
from ottla.wire.messages import sync_group as sg
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.schema import Message

_MEMBER = re.compile(r"^.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_TIMES = ("log_append_time_ms",)
_IDS = ("topic_id", "port", "cluster_id", "producer_id", "session_id", "log_dir", "usable_bytes", "total_bytes")
BASE_MS = 1_700_000_000_000


class Stage:
    """Connections by name, and everything that was answered."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peers: dict[str, Peer] = {}
        self.told: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def __getitem__(self, name: str) -> Peer:
        if name not in self.peers:
            self.peers[name] = Peer(self.port)
        return self.peers[name]

    def say(self, what: str, key: ApiKey, version: int, body: Message, who: str = "a") -> Any:
        """A request and its answer."""
        try:
            answer = self[who].call(key, version, body)
        except ConnectionError:
            self.told.append((what, "closed"))
            del self.peers[who]
            return None
        self.note(what, answer)
        return answer

    def note(self, what: str, answer: Any) -> None:
        """Write down an answer as it can be compared."""
        self.told.append((what, self._named(plain(answer))))

    def _named(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self._named(v, k) for k, v in value.items() if k not in _IDS}
        if isinstance(value, list):
            return [self._named(v) for v in value]
        if isinstance(value, str) and _MEMBER.match(value):
            return self._names.setdefault(value, f"member {len(self._names) + 1}")
        if field in _TIMES and isinstance(value, int) and value >= 0:
            return "a time"
        return value

    def topic(self, name: str, partitions: int = 1, **settings: str) -> bytes:
        """Create a topic; gives its id."""
        configs = [ct.CreatableTopicConfig(k.replace("_", "."), v) for k, v in settings.items()]
        request = ct.CreateTopicsRequest([ct.CreatableTopic(name, partitions, 1, configs=configs)], 10_000)
        answer = self.say(f"create {name}", ApiKey.CREATE_TOPICS, 7, request)
        ident: bytes = answer.topics[0].topic_id
        rows = [lo.ListOffsetsPartition(number, -1, -1) for number in range(partitions)]
        ask = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(name, rows)])
        # Kafka answers before the broker leads the new partitions.
        while any(row.error_code for row in self["a"].call(ApiKey.LIST_OFFSETS, 8, ask).topics[0].partitions):
            time.sleep(0.02)
        return ident

    def produce(self, what: str, topic: str, raw: bytes, acks: int = -1, version: int = 11) -> Any:
        """One batch to partition 0."""
        data = p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(0, raw)])
        return self.say(what, ApiKey.PRODUCE, version, p.ProduceRequest(None, acks, 10_000, [data]))

    def fetch(self, what: str, topic: str, offset: int, **more: Any) -> Any:
        """What lies in partition 0."""
        part = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = f.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[f.FetchTopic(topic, partitions=[part])], **more
        )
        return self.say(what, ApiKey.FETCH, 12, request)


def subscription(*topics: str) -> bytes:
    """What a consumer tells its group."""
    return b"\x00\x01" + compiler.encode(ConsumerProtocolSubscription(list(topics)), 1)


def _join(
    group: str,
    member: str = "",
    instance: str | None = None,
    kind: str = "consumer",
    names: tuple[str, ...] = ("range",),
    topics: tuple[str, ...] = ("stories",),
) -> j.JoinGroupRequest:
    protocols = [j.JoinGroupRequestProtocol(name, subscription(*topics)) for name in names]
    return j.JoinGroupRequest(group, 30_000, 60_000, member, instance, kind, protocols)


def _sync(group: str, generation: int, member: str, shares: dict[str, bytes], instance: str | None = None) -> Message:
    rows = [sg.SyncGroupRequestAssignment(m, a) for m, a in shares.items()]
    return sg.SyncGroupRequest(group, generation, member, instance, "consumer", "range", rows)


def _commit(group: str, generation: int = -1, member: str = "", topic: str = "stories", offset: int = 3) -> Message:
    part = oc.OffsetCommitRequestPartition(0, offset, -1, "m")
    return oc.OffsetCommitRequest(
        group, generation, member, topics=[oc.OffsetCommitRequestTopic(topic, partitions=[part])]
    )


def _positions(group: str) -> Message:
    return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, topics=None)])


def _enter(stage: Stage, group: str, who: str) -> str:
    """A new member is given its id."""
    refused = stage.say(f"{who} asks for an id", ApiKey.JOIN_GROUP, 9, _join(group), who)
    member: str = refused.member_id
    return member


def _look(stage: Stage, group: str, when: str) -> None:
    stage.say(f"describe {when}", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([group]), "looker")


def two_members(stage: Stage) -> None:
    """A group of one, of two, of one, of none."""
    stage.topic("stories", 2)
    g = "two-members"
    one = _enter(stage, g, "one")
    stage.say("beat before joining", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 0, one), "one")
    stage.say("one joins", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    _look(stage, g, "completing")
    stage.say("commit while completing", ApiKey.OFFSET_COMMIT, 9, _commit(g, 1, one), "one")
    stage.say("beat while completing", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 1, one), "one")
    stage.say("sync of another generation", ApiKey.SYNC_GROUP, 5, _sync(g, 7, one, {}), "one")
    wrong = sg.SyncGroupRequest(g, 1, one, None, "consumer", "roundrobin", [])
    stage.say("sync of another protocol", ApiKey.SYNC_GROUP, 5, wrong, "one")
    stage.say("one syncs", ApiKey.SYNC_GROUP, 5, _sync(g, 1, one, {one: b"all"}), "one")
    _look(stage, g, "stable")
    stage.say("rejoin, leader, unchanged", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.say("one syncs again", ApiKey.SYNC_GROUP, 5, _sync(g, 2, one, {one: b"all"}), "one")
    two = _enter(stage, g, "two")
    stage["two"].send(ApiKey.JOIN_GROUP, 9, _join(g, two))
    for _ in range(100):
        beat = stage["one"].call(ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 2, one))
        if beat.error_code:
            break
        time.sleep(0.02)
    stage.note("one learns of the rebalance", beat)
    _look(stage, g, "preparing")
    stage.say("commit while preparing", ApiKey.OFFSET_COMMIT, 9, _commit(g, 2, one), "one")
    stage.say("sync while preparing", ApiKey.SYNC_GROUP, 5, _sync(g, 2, one, {}), "one")
    stage.say("one rejoins", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.note("two is in", stage["two"].receive(ApiKey.JOIN_GROUP, 9))
    stage["two"].send(ApiKey.SYNC_GROUP, 5, _sync(g, 3, two, {}))
    time.sleep(0.1)
    stage.say("one hands out", ApiKey.SYNC_GROUP, 5, _sync(g, 3, one, {one: b"first", two: b"second"}), "one")
    stage.note("two's share", stage["two"].receive(ApiKey.SYNC_GROUP, 5))
    stage.say("commit, old generation", ApiKey.OFFSET_COMMIT, 9, _commit(g, 2, one), "one")
    stage.say("commit, nobody's", ApiKey.OFFSET_COMMIT, 9, _commit(g, 3, "nobody"), "one")
    stage.say("commit, no generation", ApiKey.OFFSET_COMMIT, 9, _commit(g), "one")
    stage.say("commit", ApiKey.OFFSET_COMMIT, 9, _commit(g, 3, one), "one")
    stage.say("delete while alive", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]), "one")
    wanted = od.OffsetDeleteRequestTopic("stories", [od.OffsetDeleteRequestPartition(0)])
    stage.say("forget a position that is read", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]), "one")
    stage.say("two leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(two)]), "two")
    stage.say("one beats", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 3, one), "one")
    stage.say("two beats", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 3, two), "two")
    stage.say("one is alone", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.say("one syncs alone", ApiKey.SYNC_GROUP, 5, _sync(g, 4, one, {one: b"all"}), "one")
    stage.say("one leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(one)]), "one")
    _look(stage, g, "empty")
    stage.say("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.say("forget a position", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]), "one")
    stage.say("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.say("delete", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]), "one")
    _look(stage, g, "dead")


def old_versions(stage: Stage) -> None:
    """A member that joins without being given an id first, in every version that allows it."""
    for version in (0, 1, 2, 3):
        g = f"old-{version}"
        joined = stage.say(f"join v{version}", ApiKey.JOIN_GROUP, version, _join(g), g)
        rows = [sg.SyncGroupRequestAssignment(joined.member_id, b"all")]
        request = sg.SyncGroupRequest(g, joined.generation_id, joined.member_id, assignments=rows)
        stage.say(f"sync v{min(version, 2)}", ApiKey.SYNC_GROUP, min(version, 2), request, g)
        stage.say("list", ApiKey.DESCRIBE_GROUPS, min(version, 4), dg.DescribeGroupsRequest([g]), g)
        leave = lg.LeaveGroupRequest(g, joined.member_id)
        stage.say(f"leave v{min(version, 2)}", ApiKey.LEAVE_GROUP, min(version, 2), leave, g)


def protocols(stage: Stage) -> None:
    """Members that do not fit."""
    g = "protocols"
    for kind, names in (("", ("range",)), ("consumer", ()), ("consumer", ("range", "sticky"))):
        member = _enter(stage, g, "fit")
        stage.say(f"join {kind!r} {names}", ApiKey.JOIN_GROUP, 9, _join(g, member, kind=kind, names=names), "fit")
    for kind, names in (("connect", ("range",)), ("consumer", ("other",)), ("", ("range",)), ("consumer", ())):
        stage.say(f"new {kind!r} {names}", ApiKey.JOIN_GROUP, 9, _join(g, kind=kind, names=names), "other")
    for session in (5_999, 1_800_001, -1):
        request = j.JoinGroupRequest(g, session, 60_000, "", None, "consumer", _join(g).protocols)
        stage.say(f"session {session}", ApiKey.JOIN_GROUP, 9, request, "other")


def static_members(stage: Stage) -> None:
    """A static member comes back under a new id; the old one is fenced."""
    g = "static"
    first = stage.say("join", ApiKey.JOIN_GROUP, 9, _join(g, instance="i1"), "one")
    shares = {first.member_id: b"all"}
    stage.say("sync", ApiKey.SYNC_GROUP, 5, _sync(g, 1, first.member_id, shares, "i1"), "one")
    back = stage.say("back under a new id", ApiKey.JOIN_GROUP, 9, _join(g, instance="i1"), "again")
    stage.say("and syncs", ApiKey.SYNC_GROUP, 5, _sync(g, 1, back.member_id, {}, "i1"), "again")
    stage.say("the old self beats", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 1, first.member_id, "i1"), "one")
    stage.say("and without instance", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 1, first.member_id), "one")
    stage.say("another instance", ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(g, 1, back.member_id, "i9"), "one")
    fenced = _commit(g, 1, first.member_id)
    fenced.group_instance_id = "i1"  # type: ignore[attr-defined]
    stage.say("the old self commits", ApiKey.OFFSET_COMMIT, 9, fenced, "one")
    _look(stage, g, "with a static member")
    old = stage.say("back in v4 of sync and v8 of join", ApiKey.JOIN_GROUP, 8, _join(g, instance="i1"), "third")
    stage.say("old sync", ApiKey.SYNC_GROUP, 5, _sync(g, 1, old.member_id, {}, "i1"), "third")
    gone = [lg.MemberIdentity("", "i1"), lg.MemberIdentity("", "i7"), lg.MemberIdentity("nobody")]
    stage.say("leave by instance", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=gone), "third")
    _look(stage, g, "without it")


def simple_consumers(stage: Stage) -> None:
    """Positions without members."""
    g = "simple"
    stage.say("nothing there", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.say("commit", ApiKey.OFFSET_COMMIT, 9, _commit(g))
    _look(stage, g, "simple")
    stage.say("commit with a generation", ApiKey.OFFSET_COMMIT, 9, _commit(g, 5))
    stage.say("commit as somebody", ApiKey.OFFSET_COMMIT, 9, _commit(g, -1, "somebody"))
    stage.say("offset -5", ApiKey.OFFSET_COMMIT, 9, _commit(g, offset=-5))
    stage.say("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.say("delete", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]))
    stage.say("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))


def deleted_topic(stage: Stage) -> None:
    """What becomes of positions when their topic goes and comes back."""
    g = "of-a-deleted-topic"
    stage.topic("short-lived")
    stage.say("commit", ApiKey.OFFSET_COMMIT, 9, _commit(g, topic="short-lived"))
    gone = dt.DeleteTopicsRequest([dt.DeleteTopicState("short-lived")], timeout_ms=10_000)
    stage.say("delete the topic", ApiKey.DELETE_TOPICS, 6, gone)
    time.sleep(0.5)
    stage.say("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    _look(stage, g, "of a deleted topic")
    stage.topic("short-lived")
    stage.say("positions of the new topic", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.say("commit again", ApiKey.OFFSET_COMMIT, 9, _commit(g, topic="short-lived", offset=1))
    stage.say("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))


def idempotence(stage: Stage) -> None:
    """Repeated, missing and outdated batches of one producer."""
    stage.topic("idempotent")

    def batch(sequence: int, count: int = 2, epoch: int = 0, pid: int = 77) -> bytes:
        items = [r.NewRecord(b"k", b"v%d" % i, BASE_MS + i) for i in range(count)]
        return r.build(items, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)

    for what, raw in (
        ("first", batch(0)),
        ("again", batch(0)),
        ("next", batch(2)),
        ("the first once more", batch(0)),
        ("a gap", batch(9)),
        ("part of one that is there", batch(1)),
        ("epoch 1 from 5", batch(5, epoch=1)),
        ("epoch 1 from 0", batch(0, epoch=1)),
        ("epoch 0 again", batch(2)),
        ("unknown producer in the middle", batch(40, pid=78)),
        ("and on", batch(42, pid=78)),
        ("near the end of the sequence", batch(2**31 - 2, pid=79)),
        ("over the end", batch(0, pid=79)),
    ):
        stage.produce(what, "idempotent", raw)
    for number in range(7):
        stage.produce(f"many {number}", "idempotent", batch(2 + 2 * number, epoch=1))
    stage.produce("one of the last five", "idempotent", batch(8, epoch=1))
    stage.produce("one before them", "idempotent", batch(2, epoch=1))
    stage.fetch("all of it", "idempotent", 0)


def rejected_records(stage: Stage) -> None:
    """Records that a topic's settings do not allow."""
    now = int(time.time() * 1000)
    stage.topic("narrow", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    old = [r.NewRecord(b"k", b"fine", now), r.NewRecord(b"k", b"old", BASE_MS), r.NewRecord(b"k", b"older", 5)]
    for version in (7, 8, 11):
        answer = stage["a"].call(
            ApiKey.PRODUCE,
            version,
            p.ProduceRequest(
                None,
                -1,
                10_000,
                [p.TopicProduceData("narrow", partition_data=[p.PartitionProduceData(0, r.build(old))])],
            ),
        )
        row = answer.responses[0].partition_responses[0]
        texts = [re.sub(r"[0-9]{6,}", "N", e.batch_index_error_message or "") for e in row.record_errors]
        told = [row.error_code, row.base_offset, row.error_message, [e.batch_index for e in row.record_errors], texts]
        stage.note(f"old records v{version}", told)
    stage.topic("compacted", cleanup_policy="compact")
    stage.produce("a null key", "compacted", r.build([r.NewRecord(b"k", b"v", now), r.NewRecord(None, b"v", now)]))
    stage.produce("only keys", "compacted", r.build([r.NewRecord(b"k", None, BASE_MS)]))
    stage.topic("small", max_message_bytes="200")
    stage.produce("too large", "small", r.build([r.NewRecord(b"k", b"v" * 300, BASE_MS)]))
    stage.produce("just right", "small", r.build([r.NewRecord(b"k", b"v" * 50, BASE_MS)]))
    stage.topic("stamped", message_timestamp_type="LogAppendTime")
    stage.produce("stamped by the broker", "stamped", r.build([r.NewRecord(b"k", b"v", BASE_MS)]))
    stage.topic("plain", compression_type="uncompressed")
    for codec in Codec:
        stage.produce(
            f"{codec.name} made plain", "plain", r.build([r.NewRecord(b"k", b"v" * 99, BASE_MS)], codec=codec)
        )
    stage.fetch("made plain", "plain", 0)
    stage.topic("lonely", min_insync_replicas="2")
    for acks in (-1, 1, 0):
        if acks:
            stage.produce(f"too few replicas, acks {acks}", "lonely", r.build([r.NewRecord(b"k", b"v", BASE_MS)]), acks)
    stage.produce(
        "a control batch", "plain", r.build([r.NewRecord(b"\x00\x00\x00\x00", b"v", BASE_MS)], attributes=0x20)
    )


def reading(stage: Stage) -> None:
    """Offsets, times and epochs of a log whose beginning was deleted."""
    stage.topic("book")
    for number, codec in enumerate(Codec):
        items = [r.NewRecord(b"k", b"page %d.%d" % (number, i), BASE_MS + 1000 * number + 10 * i) for i in range(4)]
        stage.produce(f"chapter {number}", "book", r.build(items, codec=codec))
    for offset in (0, 1, 5, 19, 20, 21, -1):
        stage.fetch(f"from {offset}", "book", offset)
    stage.fetch("committed only", "book", 0, isolation_level=1)
    stage.fetch("one byte", "book", 0, session_id=0, session_epoch=-1)
    for when in (-1, -2, -3, BASE_MS, BASE_MS + 1, BASE_MS + 1031, BASE_MS + 4030, BASE_MS + 4031):
        topic = lo.ListOffsetsTopic("book", [lo.ListOffsetsPartition(0, -1, when)])
        stage.say(f"offset at {when}", ApiKey.LIST_OFFSETS, 10, lo.ListOffsetsRequest(-1, 0, [topic]))
    part = dr.DeleteRecordsTopic("book", [dr.DeleteRecordsPartition(0, 6)])
    stage.say("delete below 6", ApiKey.DELETE_RECORDS, 2, dr.DeleteRecordsRequest([part], 10_000))
    for offset in (0, 5, 6, 7):
        stage.fetch(f"then from {offset}", "book", offset)
    for when in (-1, -2, -3, BASE_MS, BASE_MS + 1011, BASE_MS + 1031):
        topic = lo.ListOffsetsTopic("book", [lo.ListOffsetsPartition(0, -1, when)])
        stage.say(f"then offset at {when}", ApiKey.LIST_OFFSETS, 10, lo.ListOffsetsRequest(-1, 0, [topic]))
    for epoch in (-1, 0, 1):
        topic_epoch = ole.OffsetForLeaderTopic("book", [ole.OffsetForLeaderPartition(0, -1, epoch)])
        request = ole.OffsetForLeaderEpochRequest(-1, [topic_epoch])
        stage.say(f"end of epoch {epoch}", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)


def sessions(stage: Stage) -> None:
    """A fetch session from its first request to its last."""
    stage.topic("session", 2)
    stage.produce("one batch", "session", r.build([r.NewRecord(b"k", b"v", BASE_MS)]))

    def ask(what: str, ident: int, epoch: int, parts: dict[int, int], forget: tuple[int, ...] = ()) -> Any:
        rows = [f.FetchPartition(n, fetch_offset=at, partition_max_bytes=1 << 20) for n, at in parts.items()]
        request = f.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=ident, session_epoch=epoch)
        request.topics = [f.FetchTopic("session", partitions=rows)] if rows else []
        request.forgotten_topics_data = [f.ForgottenTopic("session", partitions=list(forget))] if forget else []
        return stage.say(what, ApiKey.FETCH, 12, request)

    ident = ask("open", 0, 0, {0: 0, 1: 0}).session_id
    ask("nothing changed but the same again", ident, 1, {})
    ask("move on", ident, 2, {0: 1})
    ask("nothing new", ident, 3, {})
    ask("an old epoch", ident, 3, {})
    ask("beyond the end", ident, 4, {1: 50})
    ask("again beyond", ident, 5, {})
    ask("forget it", ident, 6, {}, (1,))
    ask("a partition that is not", ident, 7, {9: 0})
    ask("forget all", ident, 8, {}, (0, 9))
    ask("gone with its last partition", ident, 9, {})
    again = ask("open another", 0, 0, {0: 0}).session_id
    ask("close it", again, -1, {0: 0})
    ask("it is closed", again, 1, {})


def settings(stage: Stage) -> None:
    """Settings of topics, brokers and groups, from default to dynamic and back."""
    stage.topic("set", retention_ms="5000")

    def change(what: str, kind: int, name: str, *rows: tuple[str, int, str | None], dry: bool = False) -> None:
        configs = [ia.AlterableConfig(k, op, v) for k, op, v in rows]
        resource = ia.AlterConfigsResource(kind, name, configs)
        done = stage.say(what, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ia.IncrementalAlterConfigsRequest([resource], dry))
        if kind == 4 and done is not None and not done.responses[0].error_code:
            time.sleep(0.3)

    def look(what: str, kind: int, name: str, *keys: str) -> None:
        time.sleep(0.3)  # Kafka's broker learns of a change a little after its controller has made it
        resource = dc.DescribeConfigsResource(kind, name, list(keys) or None)
        stage.say(what, ApiKey.DESCRIBE_CONFIGS, 4, dc.DescribeConfigsRequest([resource], include_synonyms=True))

    watched = ("retention.ms", "segment.bytes", "max.message.bytes", "min.insync.replicas", "cleanup.policy")
    look("topic at first", 2, "set", *watched)
    change("broker default", 4, "", ("log.retention.ms", 0, "777"), ("message.max.bytes", 0, "900000"))
    change("one broker", 4, "1", ("log.segment.bytes", 0, "5000000"))
    look("topic then", 2, "set", *watched)
    look("broker then", 4, "1", "log.retention.ms", "message.max.bytes", "log.segment.bytes", "num.io.threads")
    look("broker default then", 4, "", "log.retention.ms", "message.max.bytes")
    look("all that is set for all brokers", 4, "")
    for what, rows in (
        ("read-only", [("broker.id", 0, "5")]),
        ("read-only too", [("log.dirs", 0, "/tmp/x")]),
        ("unknown", [("no.such.key", 0, "5")]),
        ("wrong type", [("log.retention.ms", 0, "soon")]),
        ("out of range", [("num.io.threads", 0, "0")]),
        ("twice", [("log.retention.ms", 0, "1"), ("log.retention.ms", 0, "2")]),
        ("appended to a number", [("log.retention.ms", 2, "5")]),
        ("null", [("log.retention.ms", 0, None)]),
    ):
        change(f"broker: {what}", 4, "1", *rows)
    for name, value in (
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "-1"),
        ("min.cleanable.dirty.ratio", "x"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "99"),
        ("segment.bytes", "5"),
        ("max.compaction.lag.ms", "0"),
        ("retention.ms", "-2"),
        ("message.timestamp.type", "Never"),
        ("unclean.leader.election.enable", "perhaps"),
        ("segment.bytes", "99999999999"),
        ("min.insync.replicas", "0"),
    ):
        change(f"topic: {name}={value}", 2, "set", (name, 0, value))
    for rows in ([("min.insync.replicas", 0, "2")], [("ssl.keystore.location", 0, "x")], [("listeners", 0, "x")]):
        change(f"broker: {rows}", 4, "1", *rows)
        change(f"all brokers: {rows}", 4, "", *rows)
    change("all brokers: no minimum", 4, "", ("min.insync.replicas", 1, None))
    change("all brokers: minimum of one", 4, "", ("min.insync.replicas", 0, "1"))
    change("too long", 2, "set", ("leader.replication.throttled.replicas", 0, "1:1," * 9000 + "1:1"))
    change("dry", 2, "set", ("retention.ms", 0, "1"), dry=True)
    change("back", 2, "set", ("retention.ms", 1, None))
    look("topic without its own", 2, "set", *watched)
    change("broker back", 4, "", ("log.retention.ms", 1, None), ("message.max.bytes", 1, None))
    change("one broker back", 4, "1", ("log.segment.bytes", 1, None))
    look("topic at last", 2, "set", *watched)
    change("group", 32, "some", ("consumer.session.timeout.ms", 0, "50000"))
    look("group then", 32, "some")
    change("group: below the least", 32, "some", ("consumer.session.timeout.ms", 0, "5"))
    change("group: unknown", 32, "some", ("no.such", 0, "5"))
    change("group back", 32, "some", ("consumer.session.timeout.ms", 1, None))
    change("client metrics", 16, "cm", ("interval.ms", 0, "10000"), ("metrics", 0, "org.apache"))
    look("client metrics then", 16, "cm")
    change("client metrics: wrong", 16, "cm", ("interval.ms", 0, "5"))
    change("client metrics: unknown", 16, "cm", ("no.such", 0, "5"))
    change("client metrics: bad pattern", 16, "cm", ("match", 0, "colour=red"))
    change("client metrics: good pattern", 16, "cm", ("match", 0, "client_id=a.*"))
    change("client metrics: no name", 16, "", ("interval.ms", 0, "10000"))
    change("group: session below heartbeat", 32, "some", ("share.heartbeat.interval.ms", 0, "15000"))
    change("group: all at once", 32, "some", ("consumer.session.timeout.ms", 0, "x"), ("no.such", 0, "1"))
    change("unknown kind", 99, "some", ("a", 0, "1"))
    change("unknown operation", 2, "set", ("retention.ms", 9, "1"))


STORIES: list[Callable[[Stage], None]] = [
    two_members,
    old_versions,
    protocols,
    static_members,
    simple_consumers,
    deleted_topic,
    idempotence,
    rejected_records,
    reading,
    sessions,
    settings,
]


def tell(port: int) -> dict[str, list[tuple[str, Any]]]:
    """Every story, each on connections of its own."""
    first = Stage(port)
    while (
        first["a"]
        .call(ApiKey.FIND_COORDINATOR, 4, fc.FindCoordinatorRequest(coordinator_keys=["x"]))
        .coordinators[0]
        .error_code
    ):
        time.sleep(0.1)
    first.topic("stories-ready")
    while (
        first["a"]
        .call(ApiKey.OFFSET_COMMIT, 9, _commit("warm-up", topic="stories-ready"))
        .topics[0]
        .partitions[0]
        .error_code
    ):
        time.sleep(0.1)
    out = {}
    for story in STORIES:
        stage = Stage(port)
        story(stage)
        out[story.__name__] = stage.told
        for peer in stage.peers.values():
            peer.close()
    return out
