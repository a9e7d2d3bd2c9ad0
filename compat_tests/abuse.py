"""Frames no client would send, byte by byte: what a node does with them is part of how it is told apart."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import NamedTuple

from compat_tests.raw import RawClient


class Frame(NamedTuple):
    """One connection's bytes: what is sent, and how many answers are waited for at most."""

    name: str
    raw: bytes
    answers: int = 1


def frame(key: int, version: int, body: bytes = b"", *, client: bytes = b"\x00\x01c", number: int = 7) -> bytes:
    """A request with a v1 header."""
    inner = struct.pack(">hhi", key, version, number) + client + body
    return struct.pack(">i", len(inner)) + inner


def _flexible(key: int, version: int, body: bytes = b"") -> bytes:
    """A request with a v2 header: no tagged fields."""
    return frame(key, version, b"\x00" + body)


def frames() -> list[Frame]:
    """What is sent, each on a connection of its own."""
    versions = frame(18, 0)
    named = b"\x02a\x02b\x00"
    return [
        Frame("ApiVersions v0", versions),
        Frame("ApiVersions v0, null client id", frame(18, 0, client=b"\xff\xff")),
        Frame("ApiVersions v0, bytes behind the body", frame(18, 0, b"left over")),
        Frame("ApiVersions v3 in the old header", frame(18, 3, named)),
        Frame("ApiVersions v3, unknown tag in the header", frame(18, 3, b"\x01\x63\x02hi" + named)),
        Frame("ApiVersions v3, unknown tag in the body", _flexible(18, 3, b"\x02a\x02b\x01\x63\x01x")),
        Frame("ApiVersions v3, a tag twice", _flexible(18, 3, b"\x02a\x02b\x02\x63\x01x\x63\x01x")),
        Frame("ApiVersions v3, name cut off", _flexible(18, 3, b"\x20a")),
        Frame("ApiVersions v3, null name", _flexible(18, 3, b"\x00\x02b\x00")),
        Frame("ApiVersions v5", _flexible(18, 5, named)),
        Frame("ApiVersions v99", frame(18, 99, b"\xff" * 40)),
        Frame("ApiVersions v-1", frame(18, -1)),
        Frame("ApiVersions v32767", frame(18, 32767)),
        Frame("two ApiVersions at once", versions + frame(18, 0, number=8), 2),
        Frame("ApiVersions behind an unknown key", frame(99, 0) + versions),
        Frame("a body that does not parse behind a good request", versions + frame(3, 0, b"\xff\xff\xff\xff"), 2),
        Frame("Metadata v0, null topics", frame(3, 0, b"\xff\xff\xff\xff")),
        Frame("Metadata v1, null topics and bytes behind", frame(3, 1, b"\x00\x00\x00\x00" + b"x" * 9)),
        Frame("Metadata v1, a huge count", frame(3, 1, b"\x7f\xff\xff\xff")),
        Frame("Metadata v1, a count of -2", frame(3, 1, b"\xff\xff\xff\xfe")),
        Frame("Metadata v1, a name longer than the frame", frame(3, 1, b"\x00\x00\x00\x01\x7f\xff")),
        Frame("Metadata v1, a name that is no UTF-8", frame(3, 1, b"\x00\x00\x00\x01\x00\x02\xff\xfe")),
        Frame("Metadata v9, an uvarint of ten bytes", _flexible(3, 9, b"\xff" * 10)),
        Frame("Metadata v9, a count of 2^32-1", _flexible(3, 9, b"\xff\xff\xff\xff\x0f")),
        Frame("Metadata v14", _flexible(3, 14, b"\x01\x00\x00\x00")),
        Frame("Fetch v3", frame(1, 3, b"\x00" * 60)),
        Frame("Fetch v19", _flexible(1, 19, b"\x00" * 60)),
        Frame("Produce v2", frame(0, 2, b"\x00" * 30)),
        Frame("Produce v14", _flexible(0, 14, b"\x00" * 30)),
        Frame("Produce v3 with bytes missing", frame(0, 3, b"\xff\xff\xff\xff")),
        Frame("Produce v3, a huge count of topics", frame(0, 3, b"\xff\xff\xff\xff\x00\x00\x0f\xff\x7f\xff\xff\xff")),
        Frame("JoinGroup v0, negative length of the group", frame(11, 0, b"\xff\xfe" + b"\x00" * 40)),
        Frame("CreateTopics v1", frame(19, 1, b"\x00" * 20)),
        Frame("InitProducerId v6", _flexible(22, 6, b"\x00" * 20)),
        Frame("key -1", frame(-1, 0)),
        Frame("LeaderAndIsr", frame(4, 0, b"\x00" * 20)),
        Frame("ControlledShutdown", frame(7, 0, b"\x00" * 20)),
        Frame("Vote on the broker's listener", _flexible(52, 0, b"\x00" * 20)),
        Frame("AlterPartition on the broker's listener", _flexible(56, 2, b"\x00" * 20)),
        Frame("Envelope on the broker's listener", _flexible(58, 0, b"\x00" * 20)),
        Frame("BrokerHeartbeat on the broker's listener", _flexible(63, 0, b"\x00" * 20)),
        Frame("key 93", frame(93, 0)),
        Frame("a size of 0", b"\x00\x00\x00\x00"),
        Frame("a size of -1", b"\xff\xff\xff\xff"),
        Frame("a size of -2^31", b"\x80\x00\x00\x00"),
        Frame("a size of 2^31-1", b"\x7f\xff\xff\xff" + b"x" * 100),
        Frame("a size of 1", b"\x00\x00\x00\x01x"),
        Frame("a header cut off", b"\x00\x00\x00\x06\x00\x12\x00\x00\x00\x00"),
        Frame("a client id longer than the frame", b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\x7f\xff"),
        Frame("a client id of length -2", b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xfe"),
        Frame("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Frame("TLS", bytes.fromhex("16030100c8010000c40303") + b"\x00" * 200),
    ]


def outcome(port: int, sent: Frame) -> list[str]:
    """What came back: each answer in hex, its port by name, and ``closed`` where the node ended the connection."""
    got: list[str] = []
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.settimeout(RawClient.patience_s)
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
