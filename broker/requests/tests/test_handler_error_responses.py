"""Handlers that raise `ProtocolError` and get the error response of their API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.broker.requests.error_responses import build_error_response, with_error_response
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.errors import ErrorCode, ProtocolError


def context_of(key: ApiKey, version: int) -> Any:
    spec = next(spec for spec in API_SPECS if spec.key is key)
    return SimpleNamespace(spec=spec, version=version)


@pytest.mark.parametrize(
    ("key", "version", "message", "expected"),
    [
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, None, ErrorCode.INVALID_REQUEST.text),
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, "why", "why"),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, None, None),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, "why", "why"),
    ],
)
def test_handler_that_raises_returns_error_response_of_api(
    key: ApiKey, version: int, message: str | None, expected: str | None
) -> None:
    @with_error_response
    def raises(asking: Any, request: Any) -> Any:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)

    @with_error_response
    def raises_in_job(asking: Any, request: Any) -> Any:
        yield None
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)

    for handler in (raises, raises_in_job):
        answer: Any = run_to_end(handler(context_of(key, version), request_class(key)()))
        assert isinstance(answer, response_class(key))
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, expected)


def test_handler_with_error_response_returns_result_of_value_or_job() -> None:
    def job(asking: Any, request: Any) -> Any:
        yield None
        return request

    for handler in (lambda asking, request: request, job):
        assert run_to_end(with_error_response(handler)(context_of(ApiKey.HEARTBEAT, 0), "result")) == "result"


def test_init_producer_id_error_response_has_no_epoch() -> None:
    key = ApiKey.INIT_PRODUCER_ID
    answer: Any = run_to_end(build_error_response(context_of(key, 5), request_class(key)(), ErrorCode.INVALID_REQUEST))
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
