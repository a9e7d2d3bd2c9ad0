"""``ottla decode --explain``: fields of a frame, of a message version and of a generated decoder."""

from __future__ import annotations

import pytest

from ottla.cli.commands import decode
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.explain import explain
from ottla.wire.framing import encode_request
from ottla.wire.messages.heartbeat import HeartbeatRequest

TEXTS = explain(HeartbeatRequest).fields


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert decode.run(list(arguments)) == 0
    return capsys.readouterr().out


def unwrapped(text: str) -> str:
    """Return a text with its comment lines joined."""
    return " ".join(line.strip().removeprefix("# ") for line in text.splitlines())


def test_decode_explain_frame_has_comment_above_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    frame = bytes(encode_request(ApiKey.HEARTBEAT, 4, 7, "me", HeartbeatRequest("g", 3, "m")))
    plain = run(capsys, frame.hex())
    assert "#" not in plain
    explained = run(capsys, "--explain", frame.hex())
    lines = explained.splitlines()
    assert [line for line in lines if not line.startswith("        # ")] == plain.splitlines()
    number = next(i for i, line in enumerate(lines) if line.endswith("HEARTBEAT.group_id = 'g'"))
    assert lines[number - 1] == f"        # {TEXTS['group_id']}"
    assert lines[0] == "        # Length of the frame in bytes, these four left out."
    for text in TEXTS.values():
        assert text in unwrapped(explained)


def test_decode_explain_api_version_prints_request_and_response(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--explain", "heartbeat:3")
    assert "\nHeartbeatRequest v3\n" in out
    assert "\nHeartbeatResponse v3\n" in out
    assert "\n    group_instance_id: string (nullable)\n" in out
    assert f"# {TEXTS['group_id']}" in out
    assert "group_instance_id" not in run(capsys, "--explain", "HEARTBEAT:2")


def test_decode_explain_source_has_structs_above_their_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    plain = run(capsys, "--source", "HEARTBEAT:4")
    explained = run(capsys, "--explain", "--source", "HEARTBEAT:4")
    start = f"HeartbeatRequest: {explain(HeartbeatRequest).summary} group_id: {TEXTS['group_id']}"
    assert unwrapped(explained).startswith(start)
    assert [line for line in explained.splitlines() if not line.startswith("# ")] == plain.rstrip().splitlines()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("HEARTBEAT:9", "HeartbeatRequest has no version 9, only 0-4"),
        ("HEARTBEATS:1", "API:VERSION expected, such as FETCH:12: HEARTBEATS:1; did you mean HEARTBEAT?"),
    ],
)
def test_decode_explain_missing_api_version_fails(
    capsys: pytest.CaptureFixture[str], arguments: str, problem: str
) -> None:
    assert decode.run(["--explain", arguments]) == 1
    assert capsys.readouterr().err == f"ottla decode: {problem}\n"
