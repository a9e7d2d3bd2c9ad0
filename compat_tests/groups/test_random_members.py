"""Random members of consumer and streams groups, the same at a node and at Kafka: all responses are equal.

Members join, send heartbeats, report a right or wrong assignment, fall behind, pause, leave, change subscriptions and
commit. ``OTTLA_RANDOM_MEMBERS`` is the number of random tests (200 in the campaign).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.vs_kafka.answer_comparison import differences, normalize_order
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import (
    offset_commit_request,
    offset_fetch_request,
    prepare_group,
)
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import consumer_group_describe, consumer_group_heartbeat, streams_group_describe
from ottla.wire.messages import streams_group_heartbeat as sth

RUNS = int(os.environ.get("OTTLA_RANDOM_MEMBERS", "8"))
STEPS = 60
TOPICS = {"walk-a": 5, "walk-b": 3}
MEMBERS = {"a": None, "b": None, "c": "i", "d": "i"}
"""Names of members, and the static instance id of two of them."""
PARTS = dict(zip(TOPICS, "01", strict=True))
"""The subtopology that reads each topic."""
PROCESSES = {"a": "p0", "b": "p0", "c": "p1", "d": "p2"}
JOINING, LEAVING, PAUSING = 0, -1, -2
Has = dict[str, list[int]]


class RandomTestBroker:
    """Either of the two brokers; responses are compared by topic name, since topic ids differ."""

    def __init__(self, port: int) -> None:
        self.stage = ScenarioSession(port)
        self.ids = {name: self.stage.topic(name, count) for name, count in TOPICS.items()}
        self._names = {raw: name for name, raw in self.ids.items()}

    def beat(self, fields: dict[str, Any], has: Has | None) -> dict[str, Any]:
        """Return the response to a heartbeat."""
        rows = None
        if has is not None:
            row = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions
            rows = [row(self.ids[topic], numbers) for topic, numbers in has.items()]
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(**fields, topic_partitions=rows)
        answer = self.stage["walker"].call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        given = None
        if answer.assignment is not None:
            given = {self._names[row.topic_id]: sorted(row.partitions) for row in answer.assignment.topic_partitions}
        response = [answer.error_code, answer.error_message, answer.member_id, answer.member_epoch]
        return {"response": response, "given": given}

    def tasks(self, fields: dict[str, Any], has: Has | None) -> dict[str, Any]:
        """Return the response to a heartbeat of a streams group member."""
        request = sth.StreamsGroupHeartbeatRequest(**fields)
        if fields["member_epoch"] == JOINING:
            parts = [sth.Subtopology(part, [topic]) for topic, part in PARTS.items()]
            request.topology, request.process_id = sth.Topology(0, parts), PROCESSES[request.member_id]
        if has is not None:
            row = sth.StreamsGroupHeartbeatRequestTaskIds
            request.active_tasks = [row(PARTS[topic], numbers) for topic, numbers in has.items() if numbers]
            request.standby_tasks, request.warmup_tasks = [], []
        answer = self.stage["walker"].call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)
        given = None
        if answer.active_tasks is not None:
            names = {part: topic for topic, part in PARTS.items()}
            given = {names[row.subtopology_id]: sorted(row.partitions) for row in answer.active_tasks}
        status = sorted(row.status_code for row in answer.status or ())
        response = [answer.error_code, answer.error_message, answer.member_id, answer.member_epoch]
        return {"response": response, "given": given, "status": status}

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return any other response, as it can be compared."""
        return normalize_order(self._without_ids(to_json_value(self.stage["walker"].call(key, version, request))))

    def _without_ids(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._without_ids(v) for name, v in value.items() if name != "topic_id"}
        if not isinstance(value, list):
            return value
        return sorted(value) if value and isinstance(value[0], str | int) else [self._without_ids(v) for v in value]


class ConsumerGroupRandomTest:
    """Random test of a consumer group, with the assignments that its members have."""

    settings: ClassVar = {"consumer.assignment.interval.ms": "0"}
    describe: ClassVar[tuple[ApiKey, int, Any]] = (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        consumer_group_describe.ConsumerGroupDescribeRequest,
    )

    def __init__(self, seed: int, sides: tuple[RandomTestBroker, RandomTestBroker]) -> None:
        self._rng = random.Random(seed)
        self._sides = sides
        self.group = f"{type(self).__name__}-{seed}"
        # The uniform assignor processes topics in the order of their ids.
        self._assignor = self._rng.choice(["uniform", "range"])
        self._epochs: dict[str, int] = {}
        self._has: dict[str, Has] = {}
        self.steps: list[str] = []

    def go(self) -> list[str]:
        """Run the test; return the differences of the two brokers with the steps before them."""
        for side in self._sides:
            for name, value in self.settings.items():
                side.stage.alter_configs("a setting", 32, self.group, (name, 0, value))
            prepare_group(side.stage, self.group)
        for _ in range(STEPS):
            ours, theirs = self._step()
            found = list(differences(ours, theirs))
            if found:
                return [*self.steps, *found]
        return []

    def _step(self) -> tuple[Any, Any]:
        member = self._rng.choice([*MEMBERS])
        kind = self._rng.choices(["beat", "join", "leave", "commit", "describe"], [10, 3, 1, 2, 1])[0]
        if kind == "describe":
            key, version, request = self.describe
            return self._both(key, version, request([self.group], True))
        if kind == "commit":
            epoch = self._epochs.get(member, 1) + self._rng.choice([0, 0, 0, -1, -2, 1])
            topic = self._rng.choice([*TOPICS])
            request = offset_commit_request(self.group, epoch, member, topic, self._rng.randrange(TOPICS[topic]))
            self.steps.append(f"{member} commits {topic} in {epoch}")
            answers = self._both(ApiKey.OFFSET_COMMIT, 9, request)
            kept = self._both(ApiKey.OFFSET_FETCH, 9, offset_fetch_request(self.group))
            return [answers[0], kept[0]], [answers[1], kept[1]]
        return self._beat(member, kind)

    def _both(self, key: ApiKey, version: int, request: Any) -> tuple[Any, Any]:
        ours, theirs = (side.call(key, version, request) for side in self._sides)
        return ours, theirs

    def _wishes(self) -> list[str]:
        wanted = [*TOPICS][: 1 if self._assignor == "uniform" else 2]
        return self._rng.sample(wanted, self._rng.randint(0 if self._rng.random() < 0.1 else 1, len(wanted)))

    def _beat(self, member: str, kind: str) -> tuple[Any, Any]:
        rng, has = self._rng, self._has.get(member, {})
        fields: dict[str, Any] = {"group_id": self.group, "member_id": member, "instance_id": MEMBERS[member]}
        owned: Has | None
        if kind == "join" or (kind == "beat" and member not in self._epochs):
            fields |= {"member_epoch": JOINING, "rebalance_timeout_ms": 300_000, "server_assignor": self._assignor}
            fields["subscribed_topic_names"], owned = self._wishes(), {}
        elif kind == "leave":
            fields["member_epoch"] = rng.choice([LEAVING, PAUSING] if MEMBERS[member] else [LEAVING])
            owned = None
        else:
            fields["member_epoch"] = max(1, self._epochs[member] + rng.choice([0] * 8 + [-1, 1]))
            part = {topic: numbers[: rng.randint(0, len(numbers))] for topic, numbers in has.items()}
            owned = rng.choice([None, has, has, has, part, {}])
            if rng.random() < 0.1:
                fields["subscribed_topic_names"] = self._wishes()
            if rng.random() < 0.1:
                fields["rebalance_timeout_ms"] = 300_000
        return self._compare(member, kind, fields, owned)

    def _compare(self, member: str, kind: str, fields: dict[str, Any], owned: Has | None) -> tuple[Any, Any]:
        """Send a heartbeat to both and apply the response to the member."""
        self.steps.append(f"{fields} has {owned}")
        ours, theirs = (self._ask(side, fields, owned) for side in self._sides)
        error, _, _, epoch = ours["response"]
        if not error and epoch > 0:
            self._epochs[member] = epoch
            if ours["given"] is not None:
                self._has[member] = ours["given"]
        elif kind == "leave" or error:
            self._epochs.pop(member, None)
            self._has.pop(member, None)
        return ours, theirs

    def _ask(self, side: RandomTestBroker, fields: dict[str, Any], owned: Has | None) -> dict[str, Any]:
        return side.beat(fields, owned)


class StreamsGroupRandomTest(ConsumerGroupRandomTest):
    """Random test of a streams group: tasks of two subtopologies, threads of three processes."""

    settings: ClassVar = {"streams.assignment.interval.ms": "0", "streams.initial.rebalance.delay.ms": "0"}
    describe: ClassVar[tuple[ApiKey, int, Any]] = (
        ApiKey.STREAMS_GROUP_DESCRIBE,
        0,
        streams_group_describe.StreamsGroupDescribeRequest,
    )

    def _beat(self, member: str, kind: str) -> tuple[Any, Any]:
        rng, has = self._rng, self._has.get(member, {})
        fields: dict[str, Any] = {"group_id": self.group, "member_id": member}
        owned: Has | None = None
        if kind == "join" or (kind == "beat" and member not in self._epochs):
            fields |= {"member_epoch": JOINING, "rebalance_timeout_ms": 300_000}
            owned = {}
        elif kind == "leave":
            fields["member_epoch"] = LEAVING
        else:
            fields["member_epoch"] = max(1, self._epochs[member] + rng.choice([0] * 8 + [-1, 1]))
            part = {topic: numbers[: rng.randint(0, len(numbers))] for topic, numbers in has.items()}
            owned = rng.choice([None, has, has, has, part, {}])
        return self._compare(member, kind, fields, owned)

    def _ask(self, side: RandomTestBroker, fields: dict[str, Any], owned: Has | None) -> dict[str, Any]:
        return side.tasks(fields, owned)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RandomTestBroker, RandomTestBroker]]:
    where = tmp_path_factory.mktemp("members")
    with KafkaProcess(where / "kafka") as kafka, OttlaProcess(where / "ottla") as node:
        yield RandomTestBroker(node.port), RandomTestBroker(kafka.port)


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("kind", [ConsumerGroupRandomTest, StreamsGroupRandomTest])
def test_heartbeat_responses_to_random_members_equal_kafka(
    sides: tuple[RandomTestBroker, RandomTestBroker], kind: type[ConsumerGroupRandomTest]
) -> None:
    for seed in range(RUNS):
        found = kind(seed, sides).go()
        assert not found, "\n".join(found)
