"""Error codes: numbers and retriability. Source: ``Errors.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError

RETRIABLE = """
    2 3 5 6 7 9 13 14 15 16 19 20 41 51 56 70 71 72 74 75 78 80 83 84 88 89 100 103 106 122 123 133
"""


def test_error_codes_are_numbered_without_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_error_code_retriable_equals_kafkas_retriable_exceptions() -> None:
    assert [int(code) for code in ErrorCode if code.retriable] == [int(word) for word in RETRIABLE.split()]


def test_error_code_unknown_number_is_unknown_server_error() -> None:
    assert ErrorCode(134) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode(-2) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode(0) is ErrorCode.NONE


def test_error_code_text_is_kafkas_message() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.text == "Not leader or follower."


def test_protocol_error_holds_code_and_message() -> None:
    refusal = ProtocolError(ErrorCode.INVALID_CONFIG, "why")
    assert (refusal.code, refusal.message, str(refusal)) == (ErrorCode.INVALID_CONFIG, "why", "INVALID_CONFIG: why")
    assert ProtocolError(ErrorCode.NONE).message is None
