"""Session with the APIs of transactions: unknown ids, in every version. Scenarios cover the rest."""

from __future__ import annotations

from collections.abc import Iterator

from compat_tests.vs_kafka.sessions.admin_session import TOPIC
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.messages import add_offsets_to_txn as ao
from ottla.wire.messages import add_partitions_to_txn as ap
from ottla.wire.messages import describe_transactions as dt
from ottla.wire.messages import end_txn as e
from ottla.wire.messages import list_transactions as lt

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
        topics = [ap.AddPartitionsToTxnTopic(name, [number])]
        for transactional_id in ("unheard-of", ""):
            if version < 4:
                yield ap.AddPartitionsToTxnRequest([], transactional_id, *PRODUCER, topics)
            else:
                for verify in (True, False):
                    one = ap.AddPartitionsToTxnTransaction(transactional_id, *PRODUCER, verify, topics)
                    yield ap.AddPartitionsToTxnRequest([one])


def transactions(key: ApiKey, version: int) -> Iterator[Message]:
    """Return the requests of an API in a version."""
    match key:
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            yield from _add_partitions(version)
        case ApiKey.ADD_OFFSETS_TO_TXN:
            for transactional_id in ("unheard-of", ""):
                yield ao.AddOffsetsToTxnRequest(transactional_id, *PRODUCER, "a group")
        case ApiKey.END_TXN:
            for transactional_id in ("unheard-of", ""):
                for commits in (True, False):
                    yield e.EndTxnRequest(transactional_id, *PRODUCER, commits)
        case ApiKey.DESCRIBE_TRANSACTIONS:
            yield dt.DescribeTransactionsRequest(["unheard-of", ""])
            yield dt.DescribeTransactionsRequest([])
        case _:
            yield lt.ListTransactionsRequest(["Ongoing", "Nonsense"], [PRODUCER[0]])
            if version >= 1:
                yield lt.ListTransactionsRequest(duration_filter=10**15)
            if version >= 2:
                yield lt.ListTransactionsRequest(transactional_id_pattern="unheard.*")
                yield lt.ListTransactionsRequest(transactional_id_pattern="(")
