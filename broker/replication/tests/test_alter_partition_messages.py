"""Responses to AlterPartition: what the leader logs about its ISR."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replication.alter_partition_messages import apply_alter_partition_response
from ottla.broker.replication.partition_state import (
    AlterPartitionOutcome,
    CommittedIsr,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

TOPIC_ID = bytes(15) + b"\x01"
APPLIED, RETRY = AlterPartitionOutcome.APPLIED, AlterPartitionOutcome.RETRY


@pytest.mark.parametrize(
    ("pending", "row", "outcome", "line"),
    [
        (
            PendingShrinkIsr(CommittedIsr((1, 2, 3)), frozenset({3})),
            AlterPartitionResponsePartitionData(0, isr=[1, 2], partition_epoch=7),
            APPLIED,
            "Shrinking ISR from 1,2,3 to 1,2; ISR updated to 1,2 and version updated to 7: t-0",
        ),
        (
            PendingExpandIsr(CommittedIsr((1, 2)), 3),
            AlterPartitionResponsePartitionData(0, isr=[1, 2, 3], partition_epoch=8),
            APPLIED,
            "ISR updated to 1,2,3 and version updated to 8: t-0",
        ),
        (
            PendingExpandIsr(CommittedIsr((1, 2)), 3),
            AlterPartitionResponsePartitionData(0, ErrorCode.INELIGIBLE_REPLICA),
            RETRY,
            f"Failed to update ISR of t-0: INELIGIBLE_REPLICA, {RETRY.value}",
        ),
    ],
)
def test_isr_change_is_logged_with_message_of_kafka(
    pending: Any, row: AlterPartitionResponsePartitionData, outcome: Any, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    replica = SimpleNamespace(log=SimpleNamespace(label="t-0"), handle_alter_partition_result=lambda *_: outcome)
    replicas: Any = SimpleNamespace(isr_expands=0, isr_shrinks=0, isr_failures=0)
    sent: Any = {(TOPIC_ID, 0): SimpleNamespace(replica=replica, pending_isr=pending)}
    response = AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(TOPIC_ID, [row])])
    with caplog.at_level(logging.INFO):
        again = run_to_end(apply_alter_partition_response(response, sent, replicas, 0))
    assert caplog.messages == [line]
    assert again == ([(TOPIC_ID, 0)] if outcome is RETRY else [])
