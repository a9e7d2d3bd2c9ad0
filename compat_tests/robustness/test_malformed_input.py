"""Malformed input: the connection ends, the node goes on, memory stays bounded."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.support.processes import OTTLA, OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.cluster import ClusterNode
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest


def rss_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.split("\n") if line.startswith("VmRSS")).split()[1]) * 1024


def closed_after(node: OttlaProcess, raw: bytes) -> bytes:
    """Send bytes; return what was received until the node closed the connection."""
    with socket.create_connection(("127.0.0.1", node.port), 10) as sock:
        sock.settimeout(60)
        sock.sendall(raw)
        out = b""
        while more := sock.recv(65536):
            out += more
        return out


def alive(node: OttlaProcess | ClusterNode) -> bool:
    with closing(RawClient(node.port)) as peer:
        answer = peer.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1"))
    return bool(answer.error_code == 0)


@pytest.mark.behaviour("P-3")
@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 99, 0, 1, -1),
        struct.pack(">ihhih", 10, 1, 3, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhih", 10, 56, 2, 1, -1),
        struct.pack(">ihhih", 14, 3, 0, 1, -1) + b"\xff\xff\xff\xff",
        struct.pack(">ihhih", 15, 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    ],
)
def test_malformed_frame_closes_only_its_connection(node: OttlaProcess, raw: bytes) -> None:
    assert closed_after(node, raw) == b""
    assert alive(node)


@pytest.mark.behaviour("P-1")
@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_with_unknown_version_returns_v0_response(node: OttlaProcess, version: int) -> None:
    with socket.create_connection(("127.0.0.1", node.port), 10) as sock:
        sock.sendall(struct.pack(">ihhihb", 11, 18, version, 7, -1, 0))
        raw = sock.recv(1000)
    assert raw == struct.pack(">iihihhh", 16, 7, 35, 1, 18, 0, 4)


def test_frame_with_large_size_allocates_no_memory_before_its_bytes_arrive(node: OttlaProcess) -> None:
    before = rss_bytes(node.pid)
    socks = []
    for _ in range(300):
        sock = socket.create_connection(("127.0.0.1", node.port), 10)
        sock.sendall(struct.pack(">i", 100_000_000) + b"x" * 100)
        socks.append(sock)
    time.sleep(0.5)
    assert alive(node)
    assert rss_bytes(node.pid) - before < 64 << 20
    for sock in socks:
        sock.close()


def test_node_with_2000_idle_connections_serves_others(node: OttlaProcess) -> None:
    before = rss_bytes(node.pid)
    socks = [socket.create_connection(("127.0.0.1", node.port), 10) for _ in range(2000)]
    assert alive(node)
    assert rss_bytes(node.pid) - before < 64 << 20
    for sock in socks:
        sock.close()


def test_request_sent_byte_by_byte_is_served_and_delays_no_other(node: OttlaProcess) -> None:
    with socket.create_connection(("127.0.0.1", node.port), 10) as slow:
        for byte in struct.pack(">ihhih", 10, 18, 0, 3, -1):
            slow.sendall(bytes([byte]))
            assert alive(node)
        assert slow.recv(8)[4:8] == struct.pack(">i", 3)


def test_responses_unread_by_client_use_bounded_memory(node: OttlaProcess) -> None:
    peer = RawClient(node.port)
    frame = struct.pack(">ihhih", 14, 3, 1, 9, -1) + b"\xff\xff\xff\xff"
    before = rss_bytes(node.pid)
    peer.sock.settimeout(1)
    sent = 0
    try:
        for _ in range(20_000):
            peer.sock.sendall(frame)
            sent += 1
    except TimeoutError:
        pass
    assert sent > 1000
    assert alive(node)
    assert rss_bytes(node.pid) - before < 64 << 20
    peer.close()


@pytest.mark.behaviour("P-6")
def test_pipelined_requests_get_responses_in_order(node: OttlaProcess) -> None:
    peer = RawClient(node.port)
    frames = [encode_request(ApiKey.METADATA, 9, n, "p", MetadataRequest(None)) for n in range(200)]
    peer.sock.sendall(b"".join(frames))
    assert [struct.unpack(">i", peer.read()[:4])[0] for _ in range(200)] == list(range(200))
    peer.close()


def run_ottla(*arguments: str) -> tuple[int, str]:
    import subprocess

    done = subprocess.run([OTTLA, *arguments], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


def test_serve_with_invalid_arguments_prints_one_line_and_exits_with_2(node: OttlaProcess, tmp_path: Path) -> None:
    data = tmp_path / "fresh"
    cases = {
        "port taken": ["--data-dir", str(data), "--listen", node.bootstrap],
        "directory locked": ["--data-dir", str(node.data_dir), "--listen", "127.0.0.1:0"],
        "other node": ["--data-dir", str(node.data_dir), "--node-id", "7", "--listen", "127.0.0.1:0"],
        "bad value": ["--data-dir", str(data), "--set", "num.partitions=many"],
        "bad address": ["--data-dir", str(data), "--listen", "nowhere"],
        "no such file": ["--data-dir", str(data), "--config", str(tmp_path / "absent")],
        "not a directory": ["--data-dir", "/proc/version/x", "--listen", "127.0.0.1:0"],
    }
    for name, arguments in cases.items():
        status, text = run_ottla("serve", *arguments)
        assert status == 2, f"{name}: {text}"
        assert len(text.strip().split("\n")) == 1, f"{name}: {text}"
        assert text.startswith("ottla serve: "), name
    assert not data.exists(), "nothing is changed on disk"
    status, text = run_ottla(
        "serve", "--set", "num.partition=3", "--data-dir", "/proc/version/x", "--listen", "127.0.0.1:0"
    )
    assert "did you mean 'num.partitions'" in text


@pytest.mark.behaviour("P-7")
def test_connection_idle_beyond_max_idle_ms_is_closed_and_active_one_is_not(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data", connections_max_idle_ms="4000") as node:  # longer than a busy machine pauses
        silent, talking = RawClient(node.port, 0.1), RawClient(node.port)

        def is_closed() -> bool:
            talking.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
            try:
                return silent.sock.recv(1) == b""
            except TimeoutError:
                return False

        wait_until(is_closed)
        talking.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
