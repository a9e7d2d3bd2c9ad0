"""Fixtures with the coordinators of each internal topic, for the fuzzing by `invalid_records`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import trio

from compat_tests.support.random_requests import RandomRequestGenerator
from devtools.fuzzing.invalid_records import CoordinatorFixture
from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.state_machine import EndOffsetsTransaction, TopicMetadataChanged
from ottla.broker.handlers.transactions.marker_writer import write_markers
from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC
from ottla.broker.share_partitions.partition_metadata_client import PartitionMetadataClient
from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
from ottla.broker.share_state.coordinator import ShareCoordinator
from ottla.broker.share_state.persister import Persister
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_machine import DeleteShareState, TopicsDeleted
from ottla.broker.tests import share_group_fixture
from ottla.broker.tests.handler_fixture import HandlerFixture, topic_id_of
from ottla.broker.tests.transaction_coordinator_fixture import ProducerIdSequence
from ottla.broker.transactions import events
from ottla.broker.transactions.coordinator import TOPIC as TRANSACTIONS_TOPIC
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.marker_sender import MarkerSenderDependencies
from ottla.jobs.state_machine import TransactionCompletion
from ottla.jobs.time_slice import run_in_background
from ottla.log.log_validator import AppendOrigin
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.wire.record_batch import records
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker

GROUP_APIS = (
    *(
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    ),
    *(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_GROUPS,
        ApiKey.LIST_GROUPS,
    ),
    *(
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    ),
    *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
)
TRANSACTION_APIS = (
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
    *(ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.WRITE_TXN_MARKERS),
)
SHARE_APIS = (
    *(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE),
    *(
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    ),
)
T = topic_id_of("t")
RETENTION = {
    "offset_metadata_max_bytes": "50",
    "offsets_retention_minutes": "1",
    "offsets_retention_check_interval_ms": "30000",
}
ABORT = EndTransactionMarker(ControlRecordType.ABORT, 1)


def _handler_fixture(topic: str, **settings: str) -> HandlerFixture:
    stage = HandlerFixture(**settings)
    stage.hosted.host(topic, partitions=2)
    for name in ("t", "u"):
        stage.hosted.host(name, partitions=3)
    features = {"share.version": 1, "group.version": 1, "transaction.version": 2, "streams.version": 1}
    stage.hosted.image = replace(stage.hosted.image, features=features)
    hosted: Any = stage.hosted
    hosted.on_resigned = []
    return stage


def _around(stage: HandlerFixture) -> Any:
    return SimpleNamespace(
        env=stage.env,
        node_id=1,
        image=lambda: stage.hosted.image,
        address=lambda broker: None,
        access=lambda: None,
        create_state_topic=lambda: None,
    )


def _failed(*expected: Any) -> None:
    raise AssertionError(f"a log directory has failed: {expected}")


def _runner(*tasks: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)

    return run


def group_coordinators(nursery: trio.Nursery) -> CoordinatorFixture:
    """Return a fixture with a group coordinator over `__consumer_offsets`, not started; all groups are in partition 0.

    ``nursery``: for tasks of the share partition manager.
    """
    stage = _handler_fixture(OFFSETS_TOPIC, **RETENTION)
    env: Any = stage.env
    timers = Timers(env)
    coordinator = GroupCoordinator(env, stage.config, timers, _failed, lambda: stage.hosted.image)
    coordinator.partition_for = lambda key: 0  # type: ignore[method-assign]
    persister: Any = share_group_fixture.FakePersister()
    hosted: Any = stage.hosted
    stage.services.groups = coordinator
    internal = SimpleNamespace(create=lambda *_: None, failure=lambda _: None)
    stage.services.controller_forwarder = SimpleNamespace(
        create_share_topic=lambda: None, streams_internal_topics=lambda _: internal
    )
    stage.services.share_partition_manager = SharePartitionManager(
        *(env, stage.config, timers, stage.hosted, persister, None, PartitionMetadataClient(_around(stage), hosted)),  # type: ignore[arg-type]
        *(nursery.start_soon, stage.services.purgatory.check_and_complete, _failed),
    )
    images = [stage.hosted.image]
    coordinator._image = images[0]

    def disturb(odd: RandomRequestGenerator) -> None:
        image, rng = images[0], odd.rng
        kept = {name: topic for name, topic in image.topics.items() if name != "u" or rng.random() < 0.5}
        gone = {} if "u" in kept else {"u": topic_id_of("u")}
        coordinator.submit_to_all(TopicMetadataChanged(replace(image, topics=kept), frozenset("tu"), True, gone))
        kind = rng.choice((ControlRecordType.COMMIT, ControlRecordType.ABORT))
        coordinator.submit_to_partition(
            0,
            lambda own: EndOffsetsTransaction(
                own, TransactionCompletion(rng.choice((0, 1, 7)), 1, EndTransactionMarker(kind, 1), 2)
            ),
        )

    return CoordinatorFixture(
        stage,
        OFFSETS_TOPIC,
        _runner(coordinator.run, timers.run),
        coordinator.on_election,
        coordinator.on_resignation,
        coordinator.on_high_watermark_updated,
        GROUP_APIS,
        lambda: (
            coordinator.submit_to_partition(
                1, lambda own: EndOffsetsTransaction(own, TransactionCompletion(99, 1, ABORT, 2))
            ).answer
        ),
        lambda: next(iter(coordinator)).state is CoordinatorState.FAILED,
        disturb,
    )


def transaction_coordinators(nursery: trio.Nursery) -> CoordinatorFixture:
    """Return a fixture with a transaction coordinator over `__transaction_state`, not started.

    It writes markers to "t" and "u". All transactional ids are in partition 0. ``nursery`` is not used.
    """
    stage = _handler_fixture(TRANSACTIONS_TOPIC, transactional_id_expiration_ms="60000")
    env: Any = stage.env
    timers, ids = Timers(env), ProducerIdSequence()

    async def write_local(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return await run_in_background(env, write_markers(stage.services, request))

    around = MarkerSenderDependencies(1, lambda: stage.hosted.image, lambda broker: None, write_local, 30.0)
    ids.try_generate = ids.next_id  # type: ignore[attr-defined]
    coordinator = TransactionCoordinator(
        env, stage.config, timers, _failed, lambda: stage.hosted.image, lambda: 2, ids.next_id, around
    )
    coordinator.partition_for = lambda key: 0  # type: ignore[method-assign]
    stage.services.transaction_coordinator = coordinator
    stage.services.producer_ids = ids
    stage.services.groups = SimpleNamespace(partition_for=lambda group: 0)

    def serves() -> Any:
        event = lambda own: events.VerifyPartitions(own, "none", 1, 1, frozenset())  # noqa: E731
        answer = coordinator.submit_to_partition(1, event).answer
        # INVALID_PRODUCER_ID_MAPPING: the coordinator has read its log
        return None if getattr(answer, "code", None) == 49 else answer

    def disturb(odd: RandomRequestGenerator) -> None:
        coordinator.transaction_version = lambda: odd.rng.choice((0, 1, 2))

    return CoordinatorFixture(
        stage,
        TRANSACTIONS_TOPIC,
        _runner(coordinator.run, timers.run),
        coordinator.on_election,
        coordinator.on_resignation,
        coordinator.on_high_watermark_updated,
        TRANSACTION_APIS,
        serves,
        lambda: next(iter(coordinator)).state is CoordinatorState.FAILED,
        disturb,
    )


def share_coordinators(nursery: trio.Nursery) -> CoordinatorFixture:
    """Return a fixture with a share coordinator over `__share_group_state`, and the leader of the partitions of "t".

    Neither is started. The leader reads and writes the state of its share partitions by this coordinator; ``nursery``
    runs its tasks.
    """
    stage = _handler_fixture(SHARE_TOPIC)
    for number in range(3):
        replica = stage.hosted.replicas["t", number]
        replica.append(bytearray(records.build_batch([records.NewRecord(b"k", b"v", 0)] * 9)), 0, AppendOrigin.CLIENT)
        replica.log.set_high_watermark(replica.log.log_end_offset)
    env: Any = stage.env
    timers = Timers(env)
    checkpoints = SimpleNamespace(write_log_start_offsets=lambda logs: None)
    storage: Any = SimpleNamespace(directory_of=lambda log: SimpleNamespace(checkpoints=checkpoints))
    coordinator = ShareCoordinator(env, stage.config, timers, _failed, lambda: stage.hosted.image, storage)
    coordinator.partition_for = lambda at: 0  # type: ignore[method-assign]
    stage.services.share_partition_manager = SharePartitionManager(
        *(env, stage.config, timers, stage.hosted, Persister(_around(stage), coordinator), coordinator, None),  # type: ignore[arg-type]
        *(nursery.start_soon, stage.services.purgatory.check_and_complete, _failed),
    )
    probe = SharePartitionKey("none", T, 0)

    def disturb(odd: RandomRequestGenerator) -> None:
        coordinator.submit_to_all(TopicsDeleted(frozenset({odd.rng.choice((T, bytes(16)))})))

    return CoordinatorFixture(
        stage,
        SHARE_TOPIC,
        _runner(coordinator.run, timers.run, coordinator.prune_periodically),
        coordinator.on_election,
        coordinator.on_resignation,
        coordinator.on_high_watermark_updated,
        SHARE_APIS,
        lambda: coordinator.submit_to_partition(1, lambda own: DeleteShareState(own, probe)).answer,
        lambda: next(iter(coordinator)).state is CoordinatorState.FAILED,
        disturb,
    )
