"""ListTransactions (66), v0-2: the transactional ids that this broker coordinates.

Behaviour: filters by state and producer id, from v1 by how long a transaction has been ongoing (ms), from v2 by a
pattern for the whole id; an id must match all of them. Unknown states are returned and match no id. An id that has had
no transaction has the start time -1, so it counts as ongoing for very long, as in Kafka. While a coordinator partition
is loading the response is only COORDINATOR_LOAD_IN_PROGRESS.

Source: ``KafkaApis.handleListTransactionsRequest``, ``TransactionStateManager.listTransactionStates`` (apache/kafka
4.3.1).
From KIP-664; by duration: KIP-994; by pattern: KIP-1152.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.config.limits import MAX_PATTERN_BYTES
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.transactions.coordinator import state_machine_of
from ottla.broker.transactions.transaction_metadata import STATES_BY_NAME, TransactionMetadata
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.sequences import collect_distinct_job, collect_job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@with_error_response
def handle(context: RequestContext, request: ListTransactionsRequest) -> ResponseJob:
    """Return the transactional ids that match all filters and that the client may describe.

    An invalid RE2 pattern is INVALID_REGULAR_EXPRESSION, a loading coordinator partition COORDINATOR_LOAD_IN_PROGRESS.
    """
    states = yield from collect_distinct_job(request.state_filters)
    unknown = yield from collect_job(name for name in states if name not in STATES_BY_NAME)
    out = ListTransactionsResponse(unknown_state_filters=unknown)
    passes = _TransactionFilter(request, frozenset(name for name in STATES_BY_NAME if name in states), context.now_ms)
    shards = list(context.services.transaction_coordinator.active_shards())
    pattern = _pattern(request.transactional_id_pattern)
    rows = context.response_array()
    for shard in shards:
        machine = state_machine_of(shard)
        for transactional_id in machine.transactional_ids():
            txn = machine.committed_transaction(transactional_id)
            if (
                txn is not None
                and passes(txn)
                and (pattern is None or pattern.fullmatch(transactional_id))
                and context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            ):
                rows.append(TransactionState(transactional_id, txn.producer_id, txn.state.state_name))
            yield None
    out.transaction_states = rows
    return out


class _TransactionFilter:
    """Predicate for the filters by state, producer id and duration (ms); ``states``: known states of the request."""

    def __init__(self, request: ListTransactionsRequest, states: frozenset[str], now_ms: int) -> None:
        self._producers = frozenset(request.producer_id_filters)
        self._states = states
        self._is_by_state = len(request.state_filters) > 0
        self._for_ms = request.duration_filter
        self._now_ms = now_ms

    def __call__(self, txn: TransactionMetadata) -> bool:
        if self._producers and txn.producer_id not in self._producers:
            return False
        if self._is_by_state and txn.state.state_name not in self._states:
            return False
        return self._for_ms < 0 or self._now_ms - txn.start_ms > self._for_ms


def _pattern(text: str | None) -> Any:
    """Return the RE2 pattern for transactional ids; None for an empty or null pattern.

    Raises:
        ProtocolError: INVALID_REGULAR_EXPRESSION.
    """
    if not text:
        return None
    # lazy: 2.9 ms, 138 kB: only for a pattern of transactional ids
    import re2

    options = re2.Options()
    options.max_mem, options.log_errors = MAX_PATTERN_BYTES, False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeError):
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION) from None
