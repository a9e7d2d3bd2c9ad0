"""Shard with streams groups in virtual time, and members that follow the protocol."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.settings import BoundedSetting, StreamsGroupSettings
from ottla.broker.groups.state_machine import GroupStateMachine, StreamsGroupCommand
from ottla.broker.groups.streams.heartbeat import StreamsHeartbeatResult, heartbeat
from ottla.broker.groups.streams.streams_group import StreamsGroup
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import streams_group_heartbeat

TaskIds = dict[str, list[int]]


def internal(name: str, partitions: int = 0, **configs: str) -> streams_group_heartbeat.TopicInfo:
    """Return an internal topic of the application."""
    return streams_group_heartbeat.TopicInfo(
        name, partitions, 0, [streams_group_heartbeat.KeyValue(*item) for item in configs.items()]
    )


def subtopology(
    name: str,
    *sources: str,
    sinks: tuple[str, ...] = (),
    repartition: tuple[streams_group_heartbeat.TopicInfo, ...] = (),
    changelogs: tuple[str, ...] = (),
    together: tuple[tuple[list[int], list[int]], ...] = (),
) -> streams_group_heartbeat.Subtopology:
    """Return a subtopology; ``together``: indices of co-partitioned source and repartition topics."""
    groups = [streams_group_heartbeat.CopartitionGroup(a, [], b) for a, b in together]
    logs = [internal(topic) for topic in changelogs]
    return streams_group_heartbeat.Subtopology(name, list(sources), [], logs, list(sinks), list(repartition), groups)


def topology(*rows: streams_group_heartbeat.Subtopology, epoch: int = 0) -> streams_group_heartbeat.Topology:
    return streams_group_heartbeat.Topology(epoch, list(rows))


PLAIN = topology(subtopology("0", "t"))
"""Stateless subtopology that reads "t"."""


def to_task_ids(tasks: TaskIds | None) -> list[streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds] | None:
    row = streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds
    return None if tasks is None else [row(name, numbers) for name, numbers in tasks.items()]


def from_task_ids(tasks: list[streams_group_heartbeat.StreamsGroupHeartbeatResponseTaskIds] | None) -> TaskIds | None:
    return None if tasks is None else {row.subtopology_id: row.partitions for row in tasks}


class StreamsGroupShard(ConsumerGroupShard):
    """Shard with the streams group "g"; initial rebalance delay and assignment interval are 0 unless stated."""

    def __init__(self, topics: dict[str, int] | None = None, **bounded: int) -> None:
        super().__init__(topics)
        known = dict(StreamsGroupSettings().bounded_settings)
        own = {"assignment.interval.ms": 0, "initial.rebalance.delay.ms": 0}
        own.update({name.replace("_", "."): number for name, number in bounded.items()})
        for name, number in own.items():
            if name != "max.size":
                known[f"streams.{name}"] = BoundedSetting(number, 0, 10**6)
        self.known = StreamsGroupSettings(known, own.get("max.size", 2**31 - 1))
        self.settings = self.settings._replace(streams=self.known)
        self.machine = GroupStateMachine(self.settings)
        self.image(self.topics, has_new=True)
        self.kinds: list[str] = []
        self.to_create: dict[str, Any] = {}

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat; return its response or error. One that joins has all required fields."""
        if epoch == 0:
            fields = {"topology": PLAIN, "process_id": f"p-{member}", "rebalance_timeout_ms": 30_000, **fields}
            fields = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], **fields}
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest("g", member, epoch, **fields)
        self._count += 1
        pending, before = f"streams-{self._count}", len(self.log)
        rule = partial(heartbeat, call=GroupRequest(None, request, 0, "c", "10.0.0.1"))
        self.apply(self.machine.handle(self.now, StreamsGroupCommand(pending, rule)))
        self.kinds = self.records(before)
        answer = self.answers[pending]
        if isinstance(answer, ProtocolError):
            return answer
        assert isinstance(answer, StreamsHeartbeatResult)
        self.to_create = dict(answer.internal_topics_to_create)
        return answer.response

    def records(self, since: int = 0) -> list[str]:
        return [("-" if value is None else "") + str(int.from_bytes(key[:2], "big")) for key, value in self.log[since:]]

    @property
    def group(self) -> StreamsGroup:
        group = self.machine.find_streams_group("g")
        assert group is not None
        return group


class StreamsThreadClient:
    """Member as a client implements it: it applies its tasks, revokes first, and reports them."""

    def __init__(self, fixture: StreamsGroupShard, name: str, process: str | None = None, **joining: Any) -> None:
        self.fixture, self.name = fixture, name
        self.joining = {"process_id": process or f"p-{name}", **joining}
        self.epoch = 0
        self.active: TaskIds = {}
        self.standby: TaskIds = {}
        self.status: list[int] = []

    def beat(self, **fields: Any) -> Any:
        if self.epoch == 0:
            fields = {**self.joining, **fields}
        else:
            mine = {
                "active_tasks": to_task_ids(self.active),
                "standby_tasks": to_task_ids(self.standby),
                "warmup_tasks": [],
            }
            fields = {**mine, **fields}
        answer = self.fixture.beat(self.name, self.epoch, **fields)
        if isinstance(answer, ProtocolError):
            self.epoch, self.active, self.standby = 0, {}, {}
            return answer
        self.epoch, self.status = answer.member_epoch, [row.status_code for row in answer.status]
        if answer.active_tasks is not None:
            self.active, self.standby = (
                from_task_ids(answer.active_tasks) or {},
                from_task_ids(answer.standby_tasks) or {},
            )
        return answer


def reconcile_threads(*threads: StreamsThreadClient, rounds: int = 12, step_ms: int = 1_000) -> None:
    """Send heartbeats of all threads until they are stable, up to a limit."""
    for _ in range(rounds):
        before = [(one.epoch, dict(one.active), dict(one.standby)) for one in threads]
        for one in threads:
            one.beat()
        threads[0].fixture.wait(step_ms)
        if before == [(one.epoch, dict(one.active), dict(one.standby)) for one in threads]:
            return


def two_reconciled_threads(**settings: int) -> tuple[StreamsGroupShard, StreamsThreadClient, StreamsThreadClient]:
    """Return two members that share the six tasks of "t"."""
    fixture = StreamsGroupShard(**settings)
    a, b = StreamsThreadClient(fixture, "a"), StreamsThreadClient(fixture, "b")
    reconcile_threads(a)
    reconcile_threads(a, b)
    assert (sorted(a.active["0"]), sorted(b.active["0"])) == ([0, 1, 2], [3, 4, 5])
    assert fixture.group.state == "Stable"
    return fixture, a, b
