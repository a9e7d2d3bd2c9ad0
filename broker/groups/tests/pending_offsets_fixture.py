"""Group coordinator with offsets that are committed in transactions."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.coordinator import TOPIC, state_machine_of
from ottla.broker.handlers.transactions import write_txn_markers
from ottla.broker.tests.fake_transaction_verifier import FakeTransactionVerifier
from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, codes
from ottla.broker.tests.handler_fixture import resolve
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_fetch, txn_offset_commit
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

PID = 7


class PendingOffsetsNode(GroupCoordinatorNode):
    """Group coordinator beside a transaction coordinator that accepts everything."""

    def __init__(self, *fields: ErrorCode, **more: bool) -> None:
        super().__init__(**more)
        self.coordinator = FakeTransactionVerifier(self.fixture.services, *fields)
        self.fixture.services.transaction_verifier = lambda: self.coordinator

    async def txn_commit(
        self, offset: int = 5, *, pid: int = PID, epoch: int = 0, version: int = 5, partition: int = 0, **more: Any
    ) -> Any:
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition, offset, 3, more.pop("metadata", "meta"))
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(more.pop("topic", "t"), [part])]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            "x", more.pop("group", "g"), pid, epoch, more.pop("generation", -1), more.pop("member", ""), None, topics
        )
        answer = await resolve(self.ask(ApiKey.TXN_OFFSET_COMMIT, version, request))
        return codes(answer)[0][1][0][1] if not more.pop("whole", False) else codes(answer)

    async def end(self, *, commits: bool = True, pid: int = PID, epoch: int = 0, version: int = 1) -> int:
        marker = WritableTxnMarker(pid, epoch, commits, [WritableTxnMarkerTopic(TOPIC, [0])], 0, version)
        context = self.fixture.context(ApiKey.WRITE_TXN_MARKERS, 2)
        answer = await resolve(write_txn_markers.handle(context, WriteTxnMarkersRequest([marker])))
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    async def fetch(self, *, stable: bool = False, partition: int = 0, every: bool = False) -> Any:
        topics = None if every else [offset_fetch.OffsetFetchRequestTopics("t", bytes(16), [partition])]
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=topics)], require_stable=stable
        )
        answer = await resolve(self.ask(ApiKey.OFFSET_FETCH, 9, request))
        found = [(p.committed_offset, p.error_code) for t in answer.groups[0].topics for p in t.partitions]
        return found if every else found[0]

    @property
    def machine(self) -> Any:
        return state_machine_of(self.groups.shard_for("g"))

    def reload(self) -> None:
        """Reload the shard as a new leader does."""
        self.groups.on_resignation(self.replica)
        self.groups.on_election(self.replica)
