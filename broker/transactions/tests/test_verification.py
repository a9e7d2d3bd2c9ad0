"""Verification of transactions with remote coordinators: C-151.

Source: ``AddPartitionsToTxnManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual
from ottla.broker.transactions import verification
from ottla.broker.transactions.verification import (
    TransactionSupportedOperation,
    TransactionVerifier,
    TransactionVerifierDependencies,
    VerificationRequest,
)
from ottla.client.node_connection import NodeConnection
from ottla.controller.metadata.image import PartitionRegistration, TopicImage
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import add_partitions_to_txn

Work = Callable[
    [add_partitions_to_txn.AddPartitionsToTxnRequest], Awaitable[add_partitions_to_txn.AddPartitionsToTxnResponse]
]


class RemoteTransactionCoordinator:
    """Coordinator at broker 2; each request takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, highest: int = 5) -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=3)
        self.services = fixture.services
        partition = PartitionRegistration((2,), (2,), 2, 1, 0)
        image = fixture.hosted.image
        topic = TopicImage("__transaction_state", bytes(16), {0: partition})
        brokers = {2: SimpleNamespace(fenced=False, end_points=())}
        address = lambda broker_id, listener: None if brokers[broker_id].fenced else ("far", 9)  # noqa: E731
        seen = SimpleNamespace(
            topics={**image.topics, topic.name: topic}, brokers=brokers, unfenced_broker_address=address
        )
        self.image: Any = seen
        metadata: Any = SimpleNamespace(image=seen)
        self.verifier = TransactionVerifier(
            TransactionVerifierDependencies(
                fixture.env, fixture.config, metadata, fixture.hosted, lambda x: 0, self._here
            )  # type: ignore[arg-type]
        )
        self.requests: list[list[tuple[str, int]]] = []
        self.under_way = self.most = 0
        self.takes_s = 1.0
        self.result_of: Any = lambda transaction: ErrorCode.NONE
        self.channel = SimpleNamespace(versions={ApiKey.ADD_PARTITIONS_TO_TXN: (0, highest)}, call=self._call)

        async def connect(connection: NodeConnection, address: tuple[str, int]) -> Any:
            return self.channel

        monkeypatch.setattr(NodeConnection, "_connect", connect)

    async def _here(self, request: Any, version: int) -> Any:
        raise AssertionError("the coordinator is not here")

    async def _call(
        self, request: add_partitions_to_txn.AddPartitionsToTxnRequest
    ) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
        self.requests.append([(t.transactional_id, t.producer_epoch) for t in request.transactions])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await trio.sleep(self.takes_s)
        self.under_way -= 1
        response = add_partitions_to_txn.AddPartitionsToTxnResponse()
        for transaction in request.transactions:
            code = self.result_of(transaction)
            if isinstance(code, Exception):
                raise code
            rows = [
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    t.name, [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(n, code) for n in t.partitions]
                )
                for t in transaction.topics
            ]
            response.results_by_transaction.append(
                add_partitions_to_txn.AddPartitionsToTxnResult(transaction.transactional_id, rows)
            )
        return response

    async def ask(self, name: str, epoch: int = 0, pid: int = 7, partition: int = 0) -> dict[Any, ErrorCode]:
        wanted = VerificationRequest(name, pid, epoch, {("t", partition): 0}, TransactionSupportedOperation.ADD)
        answer = await self.verifier.verify_once(wanted)
        return {at: code for at, code in answer.errors.items() if code}


def results_of(remote: RemoteTransactionCoordinator, *questions: tuple[str, int]) -> dict[int, Any]:
    """Return the results by index of the request; later requests are made in order while the first is under way."""
    out: dict[int, Any] = {}

    async def one(number: int, name: str, epoch: int) -> None:
        await trio.sleep(number / 100)
        found = await remote.ask(name, epoch, pid=100 + number)
        out[number] = next(iter(found.values()), ErrorCode.NONE)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, (name, epoch) in enumerate(questions):
                nursery.start_soon(one, number, name, epoch)

    run_virtual(main)
    return out


def test_requests_made_while_one_is_under_way_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    names = [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert results_of(remote, *names) == dict.fromkeys(range(4), ErrorCode.NONE)
    assert remote.requests == [[("a", 0)], [("b", 0), ("c", 0), ("d", 0)]]
    assert remote.most == 1


def test_verification_batch_over_maximum_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_PARTITIONS_PER_REQUEST", 2)
    remote = RemoteTransactionCoordinator(monkeypatch)
    names = [(name, 0) for name in "abcdef"]
    assert results_of(remote, *names) == dict.fromkeys(range(6), ErrorCode.NONE)
    assert remote.requests == [names[:1], names[1:3], names[3:5], names[5:]]
    assert remote.most == 1


def test_verification_response_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    looked_through = []

    class Rows(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            looked_through.append(len(self))
            return super().__iter__()

    real = remote._call

    async def call(
        request: add_partitions_to_txn.AddPartitionsToTxnRequest,
    ) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
        answer = await real(request)
        answer.results_by_transaction = Rows(answer.results_by_transaction)
        return answer

    monkeypatch.setattr(remote.channel, "call", call)
    results_of(remote, *((name, 0) for name in "abcdef"))
    assert looked_through == [1, 5]


NEWER = [
    ([("a", 0), ("b", 3), ("b", 3)], {1: ErrorCode.NETWORK_EXCEPTION, 2: ErrorCode.NONE}, 3),
    ([("a", 0), ("b", 3), ("b", 4)], {1: ErrorCode.INVALID_PRODUCER_EPOCH, 2: ErrorCode.NONE}, 4),
    ([("a", 0), ("b", 3), ("b", 2)], {1: ErrorCode.NONE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}, 3),
]


@pytest.mark.behaviour("C-151")
@pytest.mark.parametrize(("questions", "answers", "sent"), NEWER, ids=str)
def test_newest_request_of_a_transactional_id_replaces_older_ones(
    questions: list[tuple[str, int]], answers: dict[int, ErrorCode], sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    assert results_of(remote, *questions) == {0: ErrorCode.NONE, **answers}
    assert remote.requests == [[("a", 0)], [("b", sent)]]


def test_each_transaction_gets_its_own_result(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    remote.result_of = lambda x: ErrorCode.PRODUCER_FENCED if x.transactional_id == "b" else ErrorCode.NONE
    assert results_of(remote, ("x", 0), ("a", 0), ("b", 0)) == {
        0: ErrorCode.NONE,
        1: ErrorCode.NONE,
        2: ErrorCode.INVALID_PRODUCER_EPOCH,
    }


@pytest.mark.parametrize("error", [OSError("gone"), WireError("no answer")], ids=str)
def test_unreachable_coordinator_returns_network_exception(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    remote.result_of = lambda x: error if x.transactional_id == "a" else ErrorCode.NONE
    assert results_of(remote, ("a", 0), ("b", 0)) == {0: ErrorCode.NETWORK_EXCEPTION, 1: ErrorCode.NONE}


@pytest.mark.behaviour("C-151")
def test_coordinator_without_verification_version_confirms_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch, highest=3)
    assert results_of(remote, ("a", 0)) == {0: ErrorCode.NONE}
    assert remote.requests == []


@pytest.mark.parametrize("fenced", [True, False])
def test_no_coordinator_returns_coordinator_not_available(*, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)
    if fenced:
        remote.image.brokers[2].fenced = True
    else:
        remote.image.topics.pop("__transaction_state")
    assert results_of(remote, ("a", 0)) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_cancelled_verification_does_not_block_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteTransactionCoordinator(monkeypatch)

    async def main() -> Any:
        with trio.move_on_after(0.5):
            await remote.ask("a")
        return await remote.ask("b", pid=8)

    assert run_virtual(main) == {}
    assert remote.requests == [[("a", 0)], [("b", 0)]]


def test_verification_ends_when_coordinator_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's host may be isolated for half a minute: the producer retries at another broker."""
    remote = RemoteTransactionCoordinator(monkeypatch)
    remote.takes_s = 1000.0
    out: list[dict[Any, ErrorCode]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                out.append(await remote.ask("a"))

            nursery.start_soon(ask)
            await trio.sleep(9)
            assert out == []
            remote.image.brokers[2].fenced = True
            await trio.sleep(2)
            assert [list(codes.values()) for codes in out] == [[ErrorCode.NETWORK_EXCEPTION]]

    run_virtual(main)
