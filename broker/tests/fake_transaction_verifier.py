"""Transaction coordinator with scripted results."""

from __future__ import annotations

from typing import Any

from ottla.broker.transactions.verification import TransactionVerifier, TransactionVerifierDependencies
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn


class FakeTransactionVerifier(TransactionVerifier):
    """Verifier with scripted results, which records its requests."""

    def __init__(self, services: Any, *codes: ErrorCode) -> None:
        super().__init__(
            TransactionVerifierDependencies(
                services.env, services.config, services.metadata, services.replica_manager, lambda x: 0, self._add
            )
        )
        self.codes = list(codes) or [ErrorCode.NONE]
        self.requested: list[add_partitions_to_txn.AddPartitionsToTxnTransaction] = []
        self.at_ms: list[float] = []
        self.meanwhile: Any = None

    def _coordinator(self, transactional_id: str) -> int | None:
        return 1 if self.codes[0] is not ErrorCode.NOT_COORDINATOR else None

    async def _add(
        self, request: add_partitions_to_txn.AddPartitionsToTxnRequest, version: int
    ) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
        assert version == 5
        (transaction,) = request.transactions
        self.requested.append(transaction)
        self.at_ms.append(self._dependencies.env.monotonic_ms())
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if self.meanwhile is not None:
            self.meanwhile()
        rows = [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                t.name,
                [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(number, code) for number in t.partitions],
            )
            for t in transaction.topics
        ]
        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_transaction=[add_partitions_to_txn.AddPartitionsToTxnResult(transaction.transactional_id, rows)]
        )
