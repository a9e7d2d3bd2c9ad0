"""Malformed frames, byte by byte, whose treatment by a node is compared with Kafka's."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import NamedTuple

from compat_tests.support.raw_client import RawClient


class MalformedFrame(NamedTuple):
    """Bytes to send on one connection, and the maximum number of responses to wait for."""

    name: str
    raw: bytes
    answers: int = 1


def build_frame(key: int, version: int, body: bytes = b"", *, client: bytes = b"\x00\x01c", number: int = 7) -> bytes:
    """Return a request with a v1 header."""
    inner = struct.pack(">hhi", key, version, number) + client + body
    return struct.pack(">i", len(inner)) + inner


def _flexible(key: int, version: int, body: bytes = b"") -> bytes:
    """Return a request with a v2 header without tagged fields."""
    return build_frame(key, version, b"\x00" + body)


def _frames_of_no_request() -> list[MalformedFrame]:
    """Return sizes and headers that hold no request, and the first bytes of other protocols."""
    return [
        MalformedFrame("a size of 0", b"\x00\x00\x00\x00"),
        MalformedFrame("a size of -1", b"\xff\xff\xff\xff"),
        MalformedFrame("a size of -2^31", b"\x80\x00\x00\x00"),
        MalformedFrame("a size of 2^31-1", b"\x7f\xff\xff\xff" + b"x" * 100),
        MalformedFrame("a size of 1", b"\x00\x00\x00\x01x"),
        MalformedFrame("a header cut off", b"\x00\x00\x00\x06\x00\x12\x00\x00\x00\x00"),
        MalformedFrame(
            "a client id longer than the frame", b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\x7f\xff"
        ),
        MalformedFrame("a client id of length -2", b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xfe"),
        MalformedFrame("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        MalformedFrame("TLS", bytes.fromhex("16030100c8010000c40303") + b"\x00" * 200),
    ]


def malformed_frames() -> list[MalformedFrame]:
    """Return the malformed frames, each for a connection of its own."""
    versions = build_frame(18, 0)
    named = b"\x02a\x02b\x00"
    return [
        MalformedFrame("ApiVersions v0", versions),
        MalformedFrame("ApiVersions v0, null client id", build_frame(18, 0, client=b"\xff\xff")),
        MalformedFrame("ApiVersions v0, bytes behind the body", build_frame(18, 0, b"left over")),
        MalformedFrame("ApiVersions v3 in the old header", build_frame(18, 3, named)),
        MalformedFrame("ApiVersions v3, unknown tag in the header", build_frame(18, 3, b"\x01\x63\x02hi" + named)),
        MalformedFrame("ApiVersions v3, unknown tag in the body", _flexible(18, 3, b"\x02a\x02b\x01\x63\x01x")),
        MalformedFrame("ApiVersions v3, a tag twice", _flexible(18, 3, b"\x02a\x02b\x02\x63\x01x\x63\x01x")),
        MalformedFrame("ApiVersions v3, name cut off", _flexible(18, 3, b"\x20a")),
        MalformedFrame("ApiVersions v3, null name", _flexible(18, 3, b"\x00\x02b\x00")),
        MalformedFrame("ApiVersions v5", _flexible(18, 5, named)),
        MalformedFrame("ApiVersions v99", build_frame(18, 99, b"\xff" * 40)),
        MalformedFrame("ApiVersions v-1", build_frame(18, -1)),
        MalformedFrame("ApiVersions v32767", build_frame(18, 32767)),
        MalformedFrame("two ApiVersions at once", versions + build_frame(18, 0, number=8), 2),
        MalformedFrame("ApiVersions behind an unknown key", build_frame(99, 0) + versions),
        MalformedFrame(
            "a body that does not parse behind a good request", versions + build_frame(3, 0, b"\xff\xff\xff\xff"), 2
        ),
        MalformedFrame("Metadata v0, null topics", build_frame(3, 0, b"\xff\xff\xff\xff")),
        MalformedFrame("Metadata v1, null topics and bytes behind", build_frame(3, 1, b"\x00\x00\x00\x00" + b"x" * 9)),
        MalformedFrame("Metadata v1, a huge count", build_frame(3, 1, b"\x7f\xff\xff\xff")),
        MalformedFrame("Metadata v1, a count of -2", build_frame(3, 1, b"\xff\xff\xff\xfe")),
        MalformedFrame("Metadata v1, a name longer than the frame", build_frame(3, 1, b"\x00\x00\x00\x01\x7f\xff")),
        MalformedFrame("Metadata v1, a name that is no UTF-8", build_frame(3, 1, b"\x00\x00\x00\x01\x00\x02\xff\xfe")),
        MalformedFrame("Metadata v9, an uvarint of ten bytes", _flexible(3, 9, b"\xff" * 10)),
        MalformedFrame("Metadata v9, a count of 2^32-1", _flexible(3, 9, b"\xff\xff\xff\xff\x0f")),
        MalformedFrame("Metadata v14", _flexible(3, 14, b"\x01\x00\x00\x00")),
        MalformedFrame("Fetch v3", build_frame(1, 3, b"\x00" * 60)),
        MalformedFrame("Fetch v19", _flexible(1, 19, b"\x00" * 60)),
        MalformedFrame("Produce v2", build_frame(0, 2, b"\x00" * 30)),
        MalformedFrame("Produce v14", _flexible(0, 14, b"\x00" * 30)),
        MalformedFrame("Produce v3 with bytes missing", build_frame(0, 3, b"\xff\xff\xff\xff")),
        MalformedFrame(
            "Produce v3, a huge count of topics", build_frame(0, 3, b"\xff\xff\xff\xff\x00\x00\x0f\xff\x7f\xff\xff\xff")
        ),
        MalformedFrame("JoinGroup v0, negative length of the group", build_frame(11, 0, b"\xff\xfe" + b"\x00" * 40)),
        MalformedFrame("CreateTopics v1", build_frame(19, 1, b"\x00" * 20)),
        MalformedFrame("InitProducerId v6", _flexible(22, 6, b"\x00" * 20)),
        MalformedFrame("key -1", build_frame(-1, 0)),
        MalformedFrame("LeaderAndIsr", build_frame(4, 0, b"\x00" * 20)),
        MalformedFrame("ControlledShutdown", build_frame(7, 0, b"\x00" * 20)),
        MalformedFrame("Vote on the broker's listener", _flexible(52, 0, b"\x00" * 20)),
        MalformedFrame("AlterPartition on the broker's listener", _flexible(56, 2, b"\x00" * 20)),
        MalformedFrame("Envelope on the broker's listener", _flexible(58, 0, b"\x00" * 20)),
        MalformedFrame("BrokerHeartbeat on the broker's listener", _flexible(63, 0, b"\x00" * 20)),
        MalformedFrame("key 93", build_frame(93, 0)),
        *_frames_of_no_request(),
    ]


def exchange(port: int, sent: MalformedFrame) -> list[str]:
    """Return the responses in hex, with the port replaced; ``closed`` if the node closed the connection."""
    got: list[str] = []
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.settimeout(RawClient.timeout_s)
        try:
            sock.sendall(sent.raw)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            while len(got) < sent.answers:
                head = _exactly(sock, 4)
                answer = _exactly(sock, struct.unpack(">i", head)[0])
                got.append(answer.replace(struct.pack(">i", port), b"PORT").hex())
        except ConnectionError:
            got.append("closed")
    return got


def _exactly(sock: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        more = sock.recv(size - len(out))
        if not more:
            raise ConnectionError("closed")
        out += more
    return out
