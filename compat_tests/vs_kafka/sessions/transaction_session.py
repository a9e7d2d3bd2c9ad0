"""Session with the APIs of transactions: unknown ids, in every version. Scenarios cover the rest."""

from __future__ import annotations

from collections.abc import Iterator

from compat_tests.vs_kafka.sessions.admin_session import TOPIC
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)

TRANSACTIONS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
PRODUCER = (4_000_000, 3)


def _add_partitions(version: int) -> Iterator[Message]:
    for name, number in ((TOPIC, 0), (TOPIC, 99), ("nowhere", 0)):
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name, [number])]
        for transactional_id in ("unheard-of", ""):
            if version < 4:
                yield add_partitions_to_txn.AddPartitionsToTxnRequest([], transactional_id, *PRODUCER, topics)
            else:
                for verify in (True, False):
                    one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
                        transactional_id, *PRODUCER, verify, topics
                    )
                    yield add_partitions_to_txn.AddPartitionsToTxnRequest([one])


def transactions(key: ApiKey, version: int) -> Iterator[Message]:
    """Return the requests of an API in a version."""
    match key:
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            yield from _add_partitions(version)
        case ApiKey.ADD_OFFSETS_TO_TXN:
            for transactional_id in ("unheard-of", ""):
                yield add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id, *PRODUCER, "a group")
        case ApiKey.END_TXN:
            for transactional_id in ("unheard-of", ""):
                for commits in (True, False):
                    yield end_txn.EndTxnRequest(transactional_id, *PRODUCER, commits)
        case ApiKey.DESCRIBE_TRANSACTIONS:
            yield describe_transactions.DescribeTransactionsRequest(["unheard-of", ""])
            yield describe_transactions.DescribeTransactionsRequest([])
        case _:
            yield list_transactions.ListTransactionsRequest(["Ongoing", "Nonsense"], [PRODUCER[0]])
            if version >= 1:
                yield list_transactions.ListTransactionsRequest(duration_filter=10**15)
            if version >= 2:
                yield list_transactions.ListTransactionsRequest(transactional_id_pattern="unheard.*")
                yield list_transactions.ListTransactionsRequest(transactional_id_pattern="(")
