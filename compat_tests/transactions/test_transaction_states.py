"""Kill of a node with transactions in every state; a node of the other kind starts on its directory: Kafka and Ottla.

Each transaction ends as its log requires: a decided one is completed, an open one continues or is aborted, with its
offsets. Producers use version 1 of the protocol, and version 2.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, free_ports
from compat_tests.support.raw_client import RawClient, wait_until
from compat_tests.transactions.marker_blocking import ClosableProxy
from compat_tests.transactions.test_transactions import is_stable, make, wait_until_committed
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.wire.record_batch import batch_header, records

TOPIC = "t"
LATER = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Retriable errors of a producer."""
COMMITS = {"committed": True, "aborted": False, "committing": True, "aborting": False, "half": True}
"""Result of each transaction; one partition of ``half`` has the marker already.

The others are not ended; ``empty`` has no records.
"""
LEFT_AT = {
    "empty": "Empty",
    "open": "Ongoing",
    "left": "Ongoing",
    "committing": "PrepareCommit",
    "half": "PrepareCommit",
    "aborting": "PrepareAbort",
    "committed": "CompleteCommit",
    "aborted": "CompleteAbort",
}
COMES_TO = {name: state.replace("Prepare", "Complete") for name, state in LEFT_AT.items()}


class ScriptedTransaction:
    """Producer with a transactional id, and a group of the same name whose offsets it commits."""

    def __init__(self, port: int, name: str, version: int) -> None:
        self.name, self.version = f"{name}-{version}", version
        self.producer = (-1, -1)
        self._peer: RawClient | None = None
        self._sequence = 0
        self.move(port)

    def move(self, port: int) -> None:
        """Connect to another node from now on."""
        self.close()
        self._peer = RawClient(port)

    def close(self) -> None:
        """Close the connections."""
        if self._peer is not None:
            self._peer.close()

    def _ask(self, key: ApiKey, version: int, body: Any, code_of: Callable[[Any], int]) -> Any:
        """Send a request until its error is not retriable."""
        found: list[Any] = []

        def is_reported() -> bool:
            found[:] = [self._peer.call(key, version, body)]
            return code_of(found[0]) not in LATER

        wait_until(is_reported)
        return found[0]

    def init(self) -> None:
        """Initialize the id."""
        for kind in (0, 1):  # coordinators of groups and of transactions: FindCoordinator creates their topics
            ask = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[self.name])
            self._ask(ApiKey.FIND_COORDINATOR, 4, ask, lambda x: x.coordinators[0].error_code)
        result = self._ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            init_producer_id.InitProducerIdRequest(self.name, 600_000),
            lambda x: x.error_code,
        )
        assert result.error_code == 0
        self.producer, self._sequence = (result.producer_id, result.producer_epoch), 0

    def write(self) -> None:
        """Write a record to each partition."""
        if self.version < 2:
            topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0, 1])]
            request = add_partitions_to_txn.AddPartitionsToTxnRequest([], self.name, *self.producer, topics)
            rows = lambda x: x.results_by_topic_v3_and_below[0].results_by_partition  # noqa: E731
            result = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, lambda x: rows(x)[0].partition_error_code)
            assert [row.partition_error_code for row in rows(result)] == [0, 0]
        for number in (0, 1):
            raw = records.build_batch(
                [records.NewRecord(None, f"{self.name}:{self._sequence}:{number}".encode(), time.time_ns() // 10**6)],
                attributes=batch_header.TRANSACTIONAL_BIT,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                base_sequence=self._sequence,
            )
            data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(number, raw)])
            query = produce.ProduceRequest(self.name, -1, 10_000, [data])
            code = lambda x: x.responses[0].partition_responses[0].error_code  # noqa: E731
            assert code(self._ask(ApiKey.PRODUCE, 12 if self.version == 2 else 11, query, code)) == 0
        self._sequence += 1

    def values(self) -> list[str]:
        """Return the written values."""
        return [f"{self.name}:{sequence}:{number}" for sequence in range(self._sequence) for number in (0, 1)]

    def commit_position(self) -> None:
        """Commit offset 7 of the group in the transaction."""
        if self.version < 2:
            query = add_offsets_to_txn.AddOffsetsToTxnRequest(self.name, *self.producer, self.name)
            assert self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, query, lambda x: x.error_code).error_code == 0
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            TOPIC, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 7)]
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(self.name, self.name, *self.producer, topics=[topic])
        code = lambda x: x.topics[0].partitions[0].error_code  # noqa: E731
        assert code(self._ask(ApiKey.TXN_OFFSET_COMMIT, 5 if self.version == 2 else 3, request, code)) == 0

    def position(self) -> tuple[int, int]:
        """Return the response to an OffsetFetch with stable offsets: an error, and the offset."""
        ask = offset_fetch.OffsetFetchRequest(
            self.name, [offset_fetch.OffsetFetchRequestTopic(TOPIC, [0])], require_stable=True
        )
        result = self._ask(ApiKey.OFFSET_FETCH, 7, ask, lambda x: x.error_code)
        row = result.topics[0].partitions[0]
        return row.error_code or result.error_code, row.committed_offset

    def end(self, *, commits: bool) -> int:
        """End the transaction as the producer; return the error."""
        request = end_txn.EndTxnRequest(self.name, *self.producer, commits)
        found = self._ask(ApiKey.END_TXN, 5 if self.version == 2 else 3, request, lambda x: x.error_code)
        return int(found.error_code)

    def mark(self) -> None:
        """Write the commit marker to the first partition, as its coordinator would."""
        topics = [write_txn_markers.WritableTxnMarkerTopic(TOPIC, [0])]
        epoch = self.producer[1] + (self.version == 2)
        marker = write_txn_markers.WritableTxnMarker(
            self.producer[0], epoch, True, topics, 0, self.version if self.version == 2 else 0
        )
        answer = self._peer.call(ApiKey.WRITE_TXN_MARKERS, 2, write_txn_markers.WriteTxnMarkersRequest([marker]))
        assert answer.markers[0].topics[0].partitions[0].error_code == 0

    def state(self) -> str:
        """Return the state of the transaction at its coordinator."""
        ask = describe_transactions.DescribeTransactionsRequest([self.name])
        result = self._ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, ask, lambda x: x.transaction_states[0].error_code)
        return str(result.transaction_states[0].transaction_state)


class OttlaWithBlockedMarkers(OttlaProcess):
    """Ottla; after `shut` no marker is sent."""

    def command(self) -> list[str]:
        """Return the command line."""
        self._mark = self.data_dir.parent / "shut"
        usual = super().command()
        return [
            sys.executable,
            "-m",
            "compat_tests.transactions.marker_blocking",
            str(self._mark),
            *usual[usual.index("serve") :],
        ]

    def shut(self) -> None:
        self._mark.touch()


class KafkaWithBlockedMarkers(KafkaProcess):
    """Apache Kafka; after `shut` its inter-broker listener is unreachable."""

    def __init__(self, data_dir: Path) -> None:
        port, inside, controller = free_ports(3)
        self._proxy = ClosableProxy(inside)
        client, brokers = f"CLIENT://127.0.0.1:{port}", "INSIDE://127.0.0.1"
        super().__init__(
            data_dir,
            port,
            inter_broker_listener_name="INSIDE",
            listener_security_protocol_map="CLIENT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            listeners=f"{client},{brokers}:{inside},CONTROLLER://localhost:{controller}",
            advertised_listeners=f"{client},{brokers}:{self._proxy.port}",
            controller_quorum_bootstrap_servers=f"localhost:{controller}",
        )

    def shut(self) -> None:
        self._proxy.close()


def start_transactions(node: Any) -> dict[str, ScriptedTransaction]:
    """Start transactions in every state, of both versions, at a node that is killed then."""
    out: dict[str, ScriptedTransaction] = {}
    with node:
        make(node.bootstrap, TOPIC)
        for version in (1, 2):
            for name in LEFT_AT:
                one = out[f"{name}-{version}"] = ScriptedTransaction(node.port, name, version)
                one.init()
                if name != "empty":
                    one.write()
                    one.commit_position()
                    assert one.position()[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
                if name in ("committed", "aborted"):
                    assert one.end(commits=COMMITS[name]) == 0
        wait_until(lambda: not any(one.state().startswith("Prepare") for one in out.values()))
        node.shut()
        for name, one in out.items():
            if "ing-" in name or "half" in name:
                assert one.end(commits=COMMITS[name[:-2]]) == 0
            if "half" in name:
                one.mark()
        assert {name: one.state() for name, one in out.items()} == both(LEFT_AT)
        node.kill()
    return out


def both(states: dict[str, str]) -> dict[str, str]:
    """Return the states of both versions."""
    return {f"{name}-{version}": state for version in (1, 2) for name, state in states.items()}


def verify_completion(node: NodeProcess, txns: dict[str, ScriptedTransaction]) -> None:
    """Verify that all transactions complete."""
    for one in txns.values():
        one.move(node.port)
    wait_until(lambda: {name: one.state() for name, one in txns.items()} == both(COMES_TO))
    for name, one in txns.items():
        item = name[:-2]
        if item in COMMITS:
            assert one.end(commits=COMMITS[item]) == 0, f"{name}: asked again"
            assert one.end(commits=not COMMITS[item]) == ErrorCode.INVALID_TXN_STATE
        elif item == "left":
            heir = ScriptedTransaction(node.port, item, one.version)
            heir.init()
            assert heir.producer[0] == one.producer[0]
            assert one.end(commits=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        else:
            one.write()
            assert one.end(commits=True) == 0
    seen = [name for name in txns if COMMITS.get(name[:-2], name[:-2] != "left")]
    wait_until(lambda: is_stable(node.bootstrap, TOPIC))
    wait_until_committed(node.bootstrap, TOPIC, sorted(value for name in seen for value in txns[name].values()))
    for name, one in txns.items():
        assert one.position() == (0, 7 if name in seen and "empty" not in name else -1), name


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("kind", [OttlaWithBlockedMarkers, KafkaWithBlockedMarkers], ids=["ottla", "kafka"])
def test_transactions_after_takeover_of_directory_complete_as_logged(
    data_dir: Path, kind: type[OttlaWithBlockedMarkers] | type[KafkaWithBlockedMarkers]
) -> None:
    dead = kind(data_dir)
    txns = start_transactions(dead)
    # Kafka takes a partition without a leader for a deleted one, and writes no marker there. While it starts, its own
    # partitions have no leader: so the former port accepts connections without a response, until all are led again.
    with socket.create_server(("127.0.0.1", dead.port)):
        other = (
            KafkaProcess(data_dir, request_timeout_ms="10000")
            if kind is OttlaWithBlockedMarkers
            else OttlaProcess(data_dir)
        )
        with other as node:
            verify_completion(node, txns)
    for one in txns.values():
        one.close()
