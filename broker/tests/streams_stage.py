"""A shard with streams groups in virtual time, and members that behave."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.groups.machine import GroupMachine, OfStreams
from ottla.broker.groups.settings import Bounded, StreamsSettings
from ottla.broker.groups.state import Call
from ottla.broker.groups.streams.heartbeat import Beaten, heartbeat
from ottla.broker.groups.streams.state import StreamsGroup
from ottla.broker.tests.consumer_stage import Shard
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import streams_group_heartbeat as hb

Told = dict[str, list[int]]


def internal(name: str, partitions: int = 0, **configs: str) -> hb.TopicInfo:
    """A topic the application makes for itself."""
    return hb.TopicInfo(name, partitions, 0, [hb.KeyValue(*item) for item in configs.items()])


def sub(
    name: str,
    *sources: str,
    sinks: tuple[str, ...] = (),
    repartition: tuple[hb.TopicInfo, ...] = (),
    changelogs: tuple[str, ...] = (),
    together: tuple[tuple[list[int], list[int]], ...] = (),
) -> hb.Subtopology:
    """A subtopology; ``together``: places of sources and of repartition topics that are joined."""
    groups = [hb.CopartitionGroup(a, [], b) for a, b in together]
    logs = [internal(topic) for topic in changelogs]
    return hb.Subtopology(name, list(sources), [], logs, list(sinks), list(repartition), groups)


def topology(*rows: hb.Subtopology, epoch: int = 0) -> hb.Topology:
    return hb.Topology(epoch, list(rows))


PLAIN = topology(sub("0", "t"))
"""One subtopology that reads "t" and stores nothing."""


def rows(tasks: Told | None) -> list[hb.StreamsGroupHeartbeatRequestTaskIds] | None:
    row = hb.StreamsGroupHeartbeatRequestTaskIds
    return None if tasks is None else [row(name, numbers) for name, numbers in tasks.items()]


def told(tasks: list[hb.StreamsGroupHeartbeatResponseTaskIds] | None) -> Told | None:
    return None if tasks is None else {row.subtopology_id: row.partitions for row in tasks}


class Stage(Shard):
    """A shard with the streams group "g"; no waiting for first members, nor between targets, unless it is said."""

    def __init__(self, topics: dict[str, int] | None = None, **bounded: int) -> None:
        super().__init__(topics)
        known = dict(StreamsSettings().bounded)
        own = {"assignment.interval.ms": 0, "initial.rebalance.delay.ms": 0}
        own.update({name.replace("_", "."): number for name, number in bounded.items()})
        for name, number in own.items():
            if name != "max.size":
                known[f"streams.{name}"] = Bounded(number, 0, 10**6)
        self.known = StreamsSettings(known, own.get("max.size", 2**31 - 1))
        self.settings = self.settings._replace(streams=self.known)
        self.machine = GroupMachine(self.settings)
        self.image(self.topics, has_new=True)
        self.kinds: list[str] = []
        self.to_create: dict[str, Any] = {}

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        """A heartbeat: its answer, or the error it was refused with. One that joins says all it must."""
        if epoch == 0:
            fields = {"topology": PLAIN, "process_id": f"p-{member}", "rebalance_timeout_ms": 30_000, **fields}
            fields = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], **fields}
        request = hb.StreamsGroupHeartbeatRequest("g", member, epoch, **fields)
        self._count += 1
        ticket, before = f"streams-{self._count}", len(self.log)
        rule = partial(heartbeat, call=Call(None, request, 0, "c", "10.0.0.1"))
        self.apply(self.machine.handle(self.now, OfStreams(ticket, rule)))
        self.kinds = self.records(before)
        answer = self.answers[ticket]
        if isinstance(answer, ProtocolError):
            return answer
        assert isinstance(answer, Beaten)
        self.to_create = dict(answer.to_create)
        return answer.response

    def records(self, since: int = 0) -> list[str]:
        return [("-" if value is None else "") + str(int.from_bytes(key[:2], "big")) for key, value in self.log[since:]]

    @property
    def group(self) -> StreamsGroup:
        group = self.machine.streams_group("g")
        assert group is not None
        return group


class Thread:
    """A member as a client is: it does what it was told to do, gives up first, and says so."""

    def __init__(self, stage: Stage, name: str, process: str | None = None, **joining: Any) -> None:
        self.stage, self.name = stage, name
        self.joining = {"process_id": process or f"p-{name}", **joining}
        self.epoch = 0
        self.active: Told = {}
        self.standby: Told = {}
        self.status: list[int] = []

    def beat(self, **fields: Any) -> Any:
        if self.epoch == 0:
            fields = {**self.joining, **fields}
        else:
            mine = {"active_tasks": rows(self.active), "standby_tasks": rows(self.standby), "warmup_tasks": []}
            fields = {**mine, **fields}
        answer = self.stage.beat(self.name, self.epoch, **fields)
        if isinstance(answer, ProtocolError):
            self.epoch, self.active, self.standby = 0, {}, {}
            return answer
        self.epoch, self.status = answer.member_epoch, [row.status_code for row in answer.status]
        if answer.active_tasks is not None:
            self.active, self.standby = told(answer.active_tasks) or {}, told(answer.standby_tasks) or {}
        return answer


def settle(*threads: Thread, rounds: int = 12, step_ms: int = 1_000) -> None:
    """Everybody beats until nothing changes any more, or so often."""
    for _ in range(rounds):
        before = [(one.epoch, dict(one.active), dict(one.standby)) for one in threads]
        for one in threads:
            one.beat()
        threads[0].stage.wait(step_ms)
        if before == [(one.epoch, dict(one.active), dict(one.standby)) for one in threads]:
            return


def pair(**settings: int) -> tuple[Stage, Thread, Thread]:
    """Two members that share the six tasks of "t"."""
    stage = Stage(**settings)
    a, b = Thread(stage, "a"), Thread(stage, "b")
    settle(a)
    settle(a, b)
    assert (sorted(a.active["0"]), sorted(b.active["0"])) == ([0, 1, 2], [3, 4, 5])
    assert stage.group.state == "Stable"
    return stage, a, b
