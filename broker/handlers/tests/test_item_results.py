"""Common parts of long requests: names that count once, results that are errors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.handlers.item_results import distinct, wait_for_success
from ottla.env.tests.reference_cycles import count_cycles
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode, ProtocolError


def test_distinct_marks_repeated_names() -> None:
    assert list(distinct(["a", "", "a", "b", "", "b"])) == ["a", "", None, "b", None, None]


def completed(answer: Any) -> PendingBrokerRequest:
    pending = PendingBrokerRequest()
    pending.deliver(answer)
    return pending


def test_wait_for_success_returns_result_and_raises_error_with_its_message() -> None:
    assert run_to_end(wait_for_success(completed("result"))) == "result"
    with pytest.raises(ProtocolError) as raised:
        run_to_end(wait_for_success(completed(ProtocolError(ErrorCode.NOT_COORDINATOR, "why"))))
    assert (raised.value.code, raised.value.message) == (ErrorCode.NOT_COORDINATOR, "why")


def test_error_of_wait_for_success_is_in_no_reference_cycle() -> None:
    def wait() -> None:
        with suppress(ProtocolError):
            run_to_end(wait_for_success(completed(ProtocolError(ErrorCode.NOT_COORDINATOR))))

    wait()
    counts: list[int] = []
    for _ in range(3):
        with count_cycles(counts):
            for _ in range(10):
                wait()
    assert min(counts) < 10
