"""Scenarios of transactions, at each transaction.version: begin, add, end, and describe."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.scenario_session import BASE_MS, ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    produce,
    update_features,
)
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.record_batch import batch_header
from ottla.wire.record_batch.records import NewRecord, build_batch

ProducerIdAndEpoch = tuple[int, int]


class TransactionScenario:
    """Scenario of one transactional id."""

    def __init__(self, stage: ScenarioSession, name: str, topic: str, level: int) -> None:
        self.stage, self.name, self.topic, self.level = stage, name, topic, level

    def init(
        self,
        label: str,
        client: ProducerIdAndEpoch = (-1, -1),
        version: int = 5,
        name: str | None = None,
        ms: int = 60_000,
    ) -> ProducerIdAndEpoch:
        """Initialize a producer; return the response."""
        name = self.name if name is None else name
        request = init_producer_id.InitProducerIdRequest(name, ms, *(client if version >= 3 else ()))
        found = self.stage.call(label, ApiKey.INIT_PRODUCER_ID, version, request)
        return found.producer_id, found.producer_epoch

    def add_partitions(
        self, label: str, client: ProducerIdAndEpoch, *parts: tuple[str, int], version: int = 3, name: str | None = None
    ) -> None:
        """Add partitions as a producer."""
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(x, [n for y, n in parts if x == y])
            for x in sorted({x for x, _ in parts})
        ]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            [], self.name if name is None else name, *client, topics
        )
        self.stage.call(label, ApiKey.ADD_PARTITIONS_TO_TXN, version, request)

    def add_partitions_as_broker(
        self, label: str, client: ProducerIdAndEpoch, *numbers: int, verify: bool, version: int = 5
    ) -> None:
        """Add partitions of the topic as a broker, or verify them."""
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(self.topic, list(numbers))]
        one = add_partitions_to_txn.AddPartitionsToTxnTransaction(self.name, *client, verify, topics)
        self.stage.call(
            label, ApiKey.ADD_PARTITIONS_TO_TXN, version, add_partitions_to_txn.AddPartitionsToTxnRequest([one])
        )

    def add_partition_at_level(self, label: str, client: ProducerIdAndEpoch, number: int) -> None:
        """Add a partition as it is done at this level. At 0 Kafka fails with partitions that brokers add."""
        if self.level:
            self.add_partitions_as_broker(label, client, number, verify=False)
        else:
            self.add_partitions(label, client, (self.topic, number))

    def end(
        self, label: str, client: ProducerIdAndEpoch, *, commits: bool, version: int = 5, name: str | None = None
    ) -> ProducerIdAndEpoch:
        """End the transaction; return the producer's id and epoch, once its markers are written."""
        request = end_txn.EndTxnRequest(self.name if name is None else name, *client, commits)
        found = self.stage.call(label, ApiKey.END_TXN, version, request)
        self.wait_until_complete()
        return (found.producer_id, found.producer_epoch) if found.producer_epoch >= 0 else client

    def _state(self) -> Any:
        request = describe_transactions.DescribeTransactionsRequest([self.name])
        return self.stage["a"].call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states[0]

    def wait_until_complete(self) -> None:
        """Wait until no request is pending."""
        wait_until(lambda: not self._state().transaction_state.startswith("Prepare"))
        time.sleep(0.05)  # the state is complete a moment before the next request may be sent

    def describe(self, label: str) -> None:
        """Describe the transaction."""
        request = describe_transactions.DescribeTransactionsRequest([self.name])
        answer = self.stage["a"].call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
        for topic in answer.transaction_states[0].topics:
            topic.partitions.sort()
        self.stage.record(label, answer)

    def list_transactions(self, label: str, version: int = 2, **filters: Any) -> None:
        """List transactions with these filters."""
        self.stage.call(label, ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))

    def write(self, label: str, client: ProducerIdAndEpoch, sequence: int, version: int, number: int = 0) -> None:
        """Write a record of the transaction."""
        raw = build_batch(
            [NewRecord(b"k", b"v", BASE_MS)],
            attributes=batch_header.TRANSACTIONAL_BIT,
            producer_id=client[0],
            producer_epoch=client[1],
            base_sequence=sequence,
        )
        data = produce.TopicProduceData(self.topic, partition_data=[produce.PartitionProduceData(number, raw)])
        self.stage.call(label, ApiKey.PRODUCE, version, produce.ProduceRequest(self.name, -1, 10_000, [data]))

    def describe_offsets(self, label: str) -> None:
        """Describe the readable end of each isolation level, and the producers."""
        for isolation in (0, 1):
            rows = [list_offsets.ListOffsetsTopic(self.topic, [list_offsets.ListOffsetsPartition(0, -1, -1)])]
            self.stage.call(
                f"{label}: {isolation}", ApiKey.LIST_OFFSETS, 8, list_offsets.ListOffsetsRequest(-1, isolation, rows)
            )
        part = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[fetch.FetchTopic(self.topic, b"", [part])],
        )
        row = self.stage["a"].call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        ids: dict[int, int] = {}
        aborted = [(ids.setdefault(x.producer_id, len(ids)), x.first_offset) for x in row.aborted_transactions or ()]
        self.stage.record_normalized(
            f"{label}: fetched", [row.high_watermark, row.last_stable_offset, len(row.records), aborted]
        )


def _level(stage: ScenarioSession, level: int) -> None:
    """Set transaction.version, up or down."""

    def request_of(kind: int) -> Any:
        update = update_features.FeatureUpdateKey("transaction.version", level, upgrade_type=kind)
        return stage["a"].call(ApiKey.UPDATE_FEATURES, 1, update_features.UpdateFeaturesRequest(10_000, [update]))

    codes = {request_of(kind).error_code for kind in (1, 2)}
    stage.record_normalized(f"transaction.version {level}", 0 in codes)
    stage.wait_until_current()


def _ready(stage: ScenarioSession, name: str) -> None:
    """Wait until the coordinator of the id responds, and that of the unknown id."""
    for each in (name, "unheard-of"):
        requested = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[each])
        wait_until(
            lambda requested=requested: (
                not stage["a"].call(ApiKey.FIND_COORDINATOR, 4, requested).coordinators[0].error_code
            )
        )
        describe = describe_transactions.DescribeTransactionsRequest([each])
        found = partial(stage["a"].call, ApiKey.DESCRIBE_TRANSACTIONS, 0, describe)
        wait_until(lambda found=found: found().transaction_states[0].error_code == 105)
    ids = init_producer_id.InitProducerIdRequest(None, 60_000)
    wait_until(lambda: not stage["a"].call(ApiKey.INIT_PRODUCER_ID, 4, ids).error_code)


def _beginnings(t: TransactionScenario) -> ProducerIdAndEpoch:
    t.init("no name", name="")
    t.init("no time", ms=0)
    t.init("too much time", ms=900_001)
    t.init("an id without an epoch", (5, -1))
    t.init("an epoch without an id", (-1, 5))
    t.describe("nobody knows it")
    member = t.init("the first", (77, 5))
    t.describe("it is empty")
    again = t.init("goes on", member)
    t.init("goes on, asked again", member)
    t.init("another epoch", (member[0], 7))
    t.init("another epoch, an old client", (member[0], 7), version=3)
    t.init("another id", (member[0] + 1, again[1]))
    return t.init("a new one", version=1)


def _additions(t: TransactionScenario, client: ProducerIdAndEpoch) -> None:
    pid, epoch = client
    t.add_partitions("no name", client, (t.topic, 0), name="")
    t.add_partitions("an id nobody knows", client, (t.topic, 0), name="unheard-of")
    t.add_partitions("another producer", (pid + 1, epoch), (t.topic, 0))
    for version in (0, 1, 2, 3):
        t.add_partitions(f"another epoch v{version}", (pid, epoch + 1), (t.topic, 0), version=version)
    t.add_partitions(
        "topics that cannot be", client, (t.topic, 0), (t.topic, 9), ("nowhere", 0), ("__transaction_state", 0)
    )
    t.add_partitions_as_broker("is it in, when nothing is", client, 0, verify=True)
    t.add_partitions("one", client, (t.topic, 0))
    t.add_partitions("the same", client, (t.topic, 0))
    t.describe("one is in")
    t.add_partitions_as_broker("which are in", client, 0, 1, verify=True, version=4)
    t.add_partitions_as_broker("another epoch", (pid, epoch + 1), 0, verify=True)
    t.add_partitions_as_broker("another id", (pid + 1, epoch), 0, verify=True)
    t.add_partition_at_level("brokers add one", client, 1)
    for version in (0, 1, 2, 3, 4):
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(t.name, pid, epoch + 1, "a group")
        t.stage.call(f"offsets of another epoch v{version}", ApiKey.ADD_OFFSETS_TO_TXN, version, request)
    t.stage.call(
        "no name", ApiKey.ADD_OFFSETS_TO_TXN, 4, add_offsets_to_txn.AddOffsetsToTxnRequest("", pid, epoch, "a group")
    )
    t.stage.call(
        "no such id",
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        add_offsets_to_txn.AddOffsetsToTxnRequest("unheard-of", pid, epoch, "a group"),
    )
    t.describe("both are in")


def _classic_ends(t: TransactionScenario, client: ProducerIdAndEpoch) -> None:
    """End transactions as producers whose epoch stays."""
    pid, epoch = client
    t.end("no name", client, commits=True, version=4, name="")
    t.end("an id nobody knows", client, commits=True, version=4, name="unheard-of")
    t.end("another id", (pid + 1, epoch), commits=True, version=4)
    for version in (0, 1, 2, 3, 4):
        t.end(f"another epoch v{version}", (pid, epoch + 1), commits=True, version=version)
    for commits in (True, False):
        kind = "commit" if commits else "abort"
        t.add_partitions(f"before the {kind}", client, (t.topic, 0))
        t.end(kind, client, commits=commits, version=3)
        t.describe(f"after the {kind}")
        t.end(f"{kind}, once more", client, commits=commits, version=3)
        t.end("the other", client, commits=not commits, version=4)
    t.init("goes on", client)


def _ends_with_bump(t: TransactionScenario, client: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """End transactions as producers that get another epoch each time."""
    t.end("no name", client, commits=True, name="")
    t.end("an id nobody knows", client, commits=True, name="unheard-of")
    t.end("a commit of nothing", client, commits=True)
    t.end("an epoch before", (client[0], client[1] - 1), commits=False)
    client = t.end("an abort of nothing", client, commits=False)
    t.describe("after nothing")
    for commits in (True, False):
        kind = "commit" if commits else "abort"
        t.add_partitions_as_broker(f"before the {kind}", client, 0, verify=False)
        t.end(f"the epoch before, {kind}", (client[0], client[1] - 1), commits=commits)
        t.end(f"the epoch after, {kind}", (client[0], client[1] + 1), commits=commits)
        t.end(f"another id, {kind}", (client[0] + 1, client[1]), commits=commits)
        after = t.end(kind, client, commits=commits)
        t.describe(f"after the {kind}")
        t.end(f"{kind}, asked again", client, commits=commits)
        t.end(f"the other, asked again after the {kind}", client, commits=not commits)
        t.end(f"an older epoch after the {kind}", (client[0], client[1] - 1), commits=commits)
        t.end(f"a commit of nothing after the {kind}", after, commits=True)
        client = t.end(f"an abort of nothing after the {kind}", after, commits=False)
        t.add_partitions_as_broker("the epoch before adds", after, 0, verify=False)
    return client


def _fences(t: TransactionScenario, client: ProducerIdAndEpoch, *, version: int) -> ProducerIdAndEpoch:
    """Initialize the id during a transaction."""
    t.add_partition_at_level("in the middle", client, 0)
    t.init("somebody comes", version=4)
    t.wait_until_complete()
    t.describe("after the fence")
    t.end("the old one aborts", client, commits=False, version=version)
    t.end("the old one commits", client, commits=True, version=version)
    t.add_partition_at_level("the old one adds", client, 0)
    t.init("the old one goes on", client)
    return t.init("somebody comes again")


def _records(t: TransactionScenario, client: ProducerIdAndEpoch) -> None:
    """Write records of transactions, valid and invalid."""
    t.write("nobody was told, an old client", client, 0, 10)
    t.write("nobody was told", client, 0, 11)
    t.add_partitions("told", client, (t.topic, 0))
    t.write("now it may", client, 0, 11)
    t.describe_offsets("in the middle")
    request = describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(t.topic, [0])])
    row = t.stage["a"].call(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0]
    found = [(x.producer_epoch, x.last_sequence, x.current_txn_start_offset >= 0) for x in row.active_producers]
    t.stage.record_normalized("who writes", found)
    t.end("aborted", client, commits=False, version=4)
    t.describe_offsets("after the abort")
    if not t.level:
        return
    t.write("of version 2", client, 1, 12)
    t.describe("it was added by itself")
    after = t.end("committed", client, commits=True)
    t.describe_offsets("after the commit")
    t.write("late", client, 2, 12)
    t.write("the next", after, 0, 12)
    t.end("committed as well", after, commits=True)
    t.describe_offsets("at last")


def transactions(stage: ScenarioSession, level: int) -> None:
    """Run all at one transaction.version."""
    _level(stage, level)
    topic = f"txn-{level}"
    stage.topic(topic, 2)
    t = TransactionScenario(stage, f"id-{level}", topic, level)
    _ready(stage, t.name)
    member = _beginnings(t)
    _additions(t, member)
    t.list_transactions("what is open", state_filters=["Ongoing"], transactional_id_pattern=f"id-{level}")
    t.list_transactions("what is open, by half a name", transactional_id_pattern="id")
    t.list_transactions("states nobody knows", version=0, state_filters=["Opened", "ongoing"])
    t.list_transactions("a pattern that is none", transactional_id_pattern="(")
    t.list_transactions("what is open for long", version=1, duration_filter=10**9, producer_id_filters=[member[0]])
    t.end("the end", member, commits=True, version=4)
    _classic_ends(t, member)
    member = t.init("begins again")
    if level:
        member = _ends_with_bump(t, member)
        member = _fences(t, member, version=5)
    _fences(t, member, version=4)
    records = TransactionScenario(stage, f"records-{level}", topic, level)
    _ready(stage, records.name)
    _records(records, records.init("for records"))


SCENARIOS = {f"transactions at {level}": partial(transactions, level=level) for level in (1, 0, 2)}
