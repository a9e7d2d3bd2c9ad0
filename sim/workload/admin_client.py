"""Administrative client that creates, fills, alters, truncates and deletes topics, and checks the results.

The client sends one request at a time and repeats it until the outcome is certain, so that it knows the expected state.
A request without a response may still be executed later, on a topic of the same name: it is recorded as ``late``.
Violations: ``unmade`` (an acknowledged change is missing), ``undead`` (a deleted topic exists).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
    produce,
    unregister_broker,
)
from ottla.wire.record_batch.records import NewRecord, build_batch
from sim.workload.clients import SINGLE_NODE, ClusterService, RetriableError, SimClient, UnknownOutcome

if TYPE_CHECKING:
    from ottla.wire.record_batch.records import Record
    from sim.engine.simulation import Simulation

NAMES = ("a0", "a1", "a2")
MAX_PARTITIONS = 6
SETTING = "max.message.bytes"
RESOURCE_TOPIC = 2
FIRST_VALUE = 900_000_000


@dataclass(slots=True)
class ExpectedTopic:
    """Topic that must exist, with its expected partitions, setting and records."""

    topic_id: bytes
    partitions: int
    config_value: int | None = None
    acked: dict[int, dict[int, int]] = field(default_factory=dict)
    """Offset of each value that must exist, by partition."""
    start: dict[int, int] = field(default_factory=dict)
    """Offset of each partition's last DeleteRecords; records below may exist or not."""


class SimAdminClient(SimClient):
    """Admin client that changes topics in a random order and knows the state that they must have."""

    def __init__(self, simulation: Simulation, name: str = "admin", service: ClusterService = SINGLE_NODE) -> None:
        super().__init__(simulation, name, service)
        self.topics: dict[str, ExpectedTopic] = {}
        self._next = FIRST_VALUE
        self._sent: dict[str, set[int]] = {}
        self._gone: dict[bytes, None] = {}
        """Ids of deleted topics, which brokers with outdated metadata may still return."""
        self._late: dict[str, set[tuple[str, int, int]]] = {name: set() for name in NAMES}
        """Requests for each topic that may be executed later: verb, partition, number."""
        self._trying = ("", 0, 0)
        self._attempts = 0
        """Number of attempts of the current request; the first response must fit the expected state."""

    async def run(self) -> None:
        """Make random changes, one at a time, until the simulation is draining."""
        rng = self.simulation.rng
        while not self.simulation.draining:
            name = rng.choice(NAMES)
            if name not in self.topics:
                await self._retry_until_certain(self._create, name)
            else:
                verbs = (self._fill, self._fill, self._fill, self._set, self._grow, self._cut, self._delete)
                await self._retry_until_certain(rng.choice(verbs), name)
            if rng.random() < 0.03 and self.service.replicas == 1:
                await self.retry_until_done(self._unregister)
            await self.sleep(rng.random() * 0.8)
        self.close_connections()

    async def _retry_until_certain(self, verb: object, name: str) -> None:
        self._attempts = 0
        assert callable(verb)
        count = 1 + int(self.simulation.rng.random() * 3)

        async def once() -> None:
            self._attempts += 1
            try:
                await verb(name, count)
            except UnknownOutcome:
                self._late[name].add(self._trying)
                raise

        await self.retry_until_done(once)

    def _check(self, code: int, name: str, repeated: ErrorCode, wrong: str) -> None:
        """Return for 0 and ``repeated``, the error that a repeated request may get; raise RetriableError for any other.

        For ``repeated``, violation ``wrong`` of topic ``name`` is reported if no repetition explains it: at the first
        attempt, with a single node (with several, a broker repeats forwarded requests), and if `_late` has no request
        of this kind for the topic.
        """
        if code == 0:
            return
        if code != repeated:
            raise RetriableError(ErrorCode(code).name)
        if (
            self._attempts == 1
            and self.service.replicas == 1
            and all(verb != self._trying[0] for verb, _, _ in self._late[name])
        ):
            self.simulation.ledger.report_violation(wrong, f"{name}: {ErrorCode(code).name}")

    # ------------------------------------------------------------------ operations

    async def _create(self, name: str, count: int) -> None:
        self._trying = ("create", 0, 0)
        creatable = create_topics.CreatableTopic(name, count, self.service.replicas)
        answer = await self.call(create_topics.CreateTopicsRequest([creatable], 5000), 7)
        self._check(answer.topics[0].error_code, name, ErrorCode.TOPIC_ALREADY_EXISTS, "undead")
        found = await self._look(name)
        if found is None or found.topic_id in self._gone:
            raise RetriableError("not seen yet")
        self.topics[name] = ExpectedTopic(found.topic_id, len(found.partitions))
        self._sent[name] = set()

    async def _look(self, name: str) -> metadata.MetadataResponseTopic | None:
        answer = await self.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], False), 12)
        topic: metadata.MetadataResponseTopic = answer.topics[0]
        return None if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else topic

    async def _fill(self, name: str, count: int) -> None:
        self._trying = ("fill", 0, 0)
        made = self.topics[name]
        partition = int(self.simulation.rng.random() * made.partitions)
        values = list(range(self._next, self._next + count))
        self._next += count
        self._sent[name].update(values)
        now = self.process.env.now_ms()
        raw = build_batch([NewRecord(b"admin", struct.pack(">q", v), now) for v in values])
        data = produce.TopicProduceData(
            topic_id=made.topic_id, partition_data=[produce.PartitionProduceData(partition, raw)]
        )
        cuts = self.simulation.ledger.power_cuts
        answer = await self.call(produce.ProduceRequest(None, -1, 5000, [data]), 13, await self.leader(name, partition))
        row = answer.responses[0].partition_responses[0]
        if row.error_code:
            raise RetriableError(ErrorCode(row.error_code).name)
        for index, value in enumerate(values if cuts == self.simulation.ledger.power_cuts else ()):
            made.acked.setdefault(partition, {})[value] = row.base_offset + index

    async def _set(self, name: str, count: int) -> None:
        value = 100_000 + self._next
        self._next += 1
        self._trying = ("set", 0, value)
        config = incremental_alter_configs.AlterableConfig(SETTING, 0, str(value))
        answer = await self.call(
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [incremental_alter_configs.AlterConfigsResource(RESOURCE_TOPIC, name, [config])]
            ),
            1,
        )
        self._check(answer.responses[0].error_code, name, ErrorCode.NONE, "unmade")
        self.topics[name].config_value = value

    async def _grow(self, name: str, count: int) -> None:
        made = self.topics[name]
        if made.partitions + count > MAX_PARTITIONS:
            return
        self._trying = ("grow", 0, made.partitions + count)
        request = create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, made.partitions + count, None)], 5000
        )
        answer = await self.call(request, 3)
        self._check(answer.results[0].error_code, name, ErrorCode.INVALID_PARTITIONS, "undead")
        made.partitions += count

    async def _cut(self, name: str, count: int) -> None:
        """Delete the records below the offset of a random acknowledged one, in the first partition that has any.

        They need not exist any more. Without an acknowledged record, nothing is sent.

        Raises:
            RetriableError: no response, or an error response.
        """
        made = self.topics[name]
        for partition, acked in made.acked.items():
            if acked:
                offset = self.simulation.rng.choice(list(acked.values()))
                self._trying = ("cut", partition, offset)
                for value in [v for v, o in acked.items() if o < offset]:
                    del acked[value]
                made.start[partition] = max(made.start.get(partition, 0), offset)
                topic = delete_records.DeleteRecordsTopic(
                    name, [delete_records.DeleteRecordsPartition(partition, offset)]
                )
                at = await self.leader(name, partition)
                answer = await self.call(delete_records.DeleteRecordsRequest([topic], 5000), 2, at)
                code = answer.topics[0].partitions[0].error_code
                self._check(code, name, ErrorCode.NONE, "unmade")
                return

    async def _delete(self, name: str, count: int) -> None:
        self._trying = ("delete", 0, 0)
        topic = delete_topics.DeleteTopicState(None, self.topics[name].topic_id)
        answer = await self.call(delete_topics.DeleteTopicsRequest([topic], timeout_ms=5000), 6)
        self._check(answer.responses[0].error_code, name, ErrorCode.UNKNOWN_TOPIC_ID, "unmade")
        self._gone[self.topics.pop(name).topic_id] = None

    async def _unregister(self) -> None:
        await self.call(unregister_broker.UnregisterBrokerRequest(1), 0)

    # ------------------------------------------------------------------ verification

    def power_cut(self) -> None:
        """Record a power cut: no record has to exist any more; the expected metadata stay as they are."""
        for made in self.topics.values():
            made.acked.clear()

    async def verify(self) -> None:
        """Compare the metadata of all topics with the expected state; report ``undead`` and ``unmade``.

        Raises:
            RetriableError: no response.
        """
        violation = self.simulation.ledger.report_violation
        for name in NAMES:
            found, made, late = await self._look(name), self.topics.get(name), self._late[name]
            if made is None:
                if found is not None and ("create", 0, 0) not in late:
                    violation("undead", f"{name} was deleted")
                continue
            if found is None:
                violation("unmade", f"{name} is not there")
                continue
            count = len(found.partitions)
            if found.topic_id != made.topic_id or (count != made.partitions and ("grow", 0, count) not in late):
                violation("unmade", f"{name}: {count} partitions, {made}")
            if made.config_value is None:
                continue
            resource = describe_configs.DescribeConfigsResource(RESOURCE_TOPIC, name, [SETTING])
            answer = await self.call(describe_configs.DescribeConfigsRequest([resource]), 4)
            value = int(answer.results[0].configs[0].value)
            if value != made.config_value and ("set", 0, value) not in late:
                violation("unmade", f"{name}: {SETTING} {value}, not {made.config_value}")

    def verify_records(self, name: str, partition: int, records: list[Record]) -> None:
        """Compare the records of a partition with those sent; report ``ghost`` and ``lost``.

        Records sent twice may exist twice.
        """
        ledger, made = self.simulation.ledger, self.topics[name]
        cut = max((n for verb, at, n in self._late[name] if (verb, at) == ("cut", partition)), default=0)
        found = {record.offset: struct.unpack(">q", record.value or bytes(8))[0] for record in records}
        for value in found.values():
            if value not in self._sent[name]:
                ledger.report_violation("ghost", f"{name}-{partition}: {value}")
        for value, offset in made.acked.get(partition, {}).items():
            if found.get(offset) != value and offset >= cut:
                ledger.report_violation("lost", f"{name}-{partition}: {value} acknowledged at {offset}")
