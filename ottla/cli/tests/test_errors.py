"""Error lines of commands."""

from __future__ import annotations

import pytest

from ottla.cli.errors import error_text
from ottla.client.channel import UnsupportedVersionError
from ottla.wire.errors import ErrorCode, ProtocolError, WireError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            UnsupportedVersionError("The node does not support DESCRIBE_CLIENT_QUOTAS"),
            "unsupported request: h:1: The node does not support DESCRIBE_CLIENT_QUOTAS",
        ),
        (WireError("too short"), "protocol error: h:1: too short"),
        (ConnectionRefusedError(111, "Connection refused"), "cannot connect to h:1: connection refused"),
    ],
)
def test_error_text_names_the_problem_and_the_address(error: Exception, line: str) -> None:
    assert error_text(error, "h:1").lower() == line.lower()


def test_error_text_of_an_error_code_has_the_message_of_the_node() -> None:
    error = ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t does not exist")
    assert error_text(error, "h:1").endswith(": topic t does not exist")
