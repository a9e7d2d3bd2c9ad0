"""``ottla trace --explain``: each field is explained at its first appearance."""

from __future__ import annotations

from ottla.tools.trace import LINE_WIDTH, ConnectionTrace, format_message
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.explain import explain, format_comment
from ottla.wire.field_dump import Explainer
from ottla.wire.framing import encode_request
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest

REQUEST = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0), FetchPartition(1)])])


def comments(text: str, indent: int) -> list[str]:
    return list(format_comment(text, indent, LINE_WIDTH))


def test_format_message_explains_each_field_once() -> None:
    lines = list(format_message(REQUEST, 12, explainer=Explainer()))
    expected = comments(explain(FetchPartition).fields["fetch_offset"], 12)
    assert lines.count(expected[0]) == 1
    number = lines.index(expected[0])
    assert lines[number : number + len(expected)] == expected
    assert lines[number + len(expected)] == "            fetch_offset: 0"
    assert lines.count("            fetch_offset: 0") == 2
    assert not any("high_watermark" in line for line in lines)  # not in version 12


def test_format_message_without_explainer_has_no_comments() -> None:
    lines = list(format_message(REQUEST, 12))
    assert "        partitions[1]: " in "\n".join(lines)
    assert not any("#" in line for line in lines)


def trace_requests(*, show_bytes: bool) -> list[str]:
    lines: list[str] = []
    trace = ConnectionTrace("c", lambda x: x, lines.append, show_bytes=show_bytes, explainer=Explainer())
    for number in range(2):
        trace.request(bytes(encode_request(ApiKey.HEARTBEAT, 3, number, "me", HeartbeatRequest("g", 3, "m"))), 0)
    return lines


def test_connection_trace_explains_fields_of_first_request() -> None:
    lines = trace_requests(show_bytes=False)
    text = explain(HeartbeatRequest).fields["group_id"]
    assert lines.count(f"    # {text}") == 1
    assert lines[lines.index(f"    # {text}") + 1] == "    group_id: 'g'"
    assert lines.count("    group_id: 'g'") == 2


def test_connection_trace_with_bytes_explains_fields_of_first_request() -> None:
    lines = trace_requests(show_bytes=True)
    text = explain(HeartbeatRequest).fields["group_id"]
    assert lines.count(f"        # {text}") == 1
    assert sum(line.endswith("HEARTBEAT.group_id = 'g'") for line in lines) == 2
