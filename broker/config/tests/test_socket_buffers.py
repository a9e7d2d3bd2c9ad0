"""Socket buffer sizes."""

from __future__ import annotations

import pytest

from ottla.broker.config.node_config import DEFAULT_SEND_BUFFER_BYTES, NodeConfig


@pytest.mark.parametrize(
    ("given", "send_bytes"),
    [
        ({}, DEFAULT_SEND_BUFFER_BYTES),
        ({"socket.send.buffer.bytes": "102400"}, 102400),
        ({"socket.send.buffer.bytes": "-1"}, -1),
    ],
)
def test_socket_send_buffer_bytes_uses_setting_or_larger_default(given: dict[str, str], send_bytes: int) -> None:
    config = NodeConfig(given, "/a", 1, "node", 9092)
    assert config.socket_buffers.send_bytes == send_bytes
    assert config.socket_buffers.receive_bytes == 102400
    assert config.number("socket.send.buffer.bytes") == int(given.get("socket.send.buffer.bytes", "102400")), "told so"
