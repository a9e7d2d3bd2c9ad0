"""Frames as pcap files: headers and checksums, and what tshark reads from them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ottla.console.pcap import PcapFrame, write_pcap
from ottla.console.tests.saved_frames import PORT, TIME_MS, frame_pairs, pcap_of

TSHARK = shutil.which("tshark")


def frame(data: bytes, *, client: str = "10.0.0.7", server: str = "10.0.0.1", is_request: bool = True) -> PcapFrame:
    return PcapFrame(3, client, (server, PORT), is_request, TIME_MS, data)


def packets(raw: bytes) -> list[tuple[float, bytes]]:
    """Return time and bytes of each packet of a pcap file."""
    assert struct.unpack_from("<IHH", raw) == (0xA1B2C3D4, 2, 4)
    out, at = [], 24
    while at < len(raw):
        seconds, microseconds, kept, size = struct.unpack_from("<IIII", raw, at)
        assert kept == size
        out.append((seconds + microseconds / 1e6, raw[at + 16 : at + 16 + size]))
        at += 16 + size
    return out


def sum_of_words(raw: bytes) -> int:
    total = sum(struct.unpack(f">{(len(raw) + 1) // 2}H", raw + b"\0" * (len(raw) % 2)))
    return total % 0xFFFF


@pytest.mark.parametrize(
    ("client", "server", "header_bytes"),
    [("10.0.0.7", "10.0.0.1", 20), ("::1", "::1", 40), ("::ffff:10.0.0.7", "::1", 40), ("10.0.0.7", "name", 20)],
)
def test_packets_have_right_sizes_and_checksums(client: str, server: str, header_bytes: int) -> None:
    raw = b"".join(write_pcap([frame(b"abc", client=client, server=server)]))
    ((time, packet),) = packets(raw)
    assert time == pytest.approx(TIME_MS / 1000)
    assert packet[header_bytes + 20 :] == b"abc"
    tcp = packet[header_bytes:]
    addresses = packet[12:20] if header_bytes == 20 else packet[8:40]
    assert sum_of_words(addresses + struct.pack(">HH", 6, len(tcp)) + tcp) == 0
    if header_bytes == 20:
        assert sum_of_words(packet[:20]) == 0
        assert struct.unpack_from(">H", packet, 2) == (len(packet),)
    else:
        assert struct.unpack_from(">H", packet, 4) == (len(tcp),)


def test_large_frame_is_split_and_numbers_continue() -> None:
    data = bytes(range(256)) * 200
    raw = b"".join(write_pcap([frame(data), frame(b"answer", is_request=False), frame(b"next")]))
    found = [packet[20:] for _, packet in packets(raw)]
    assert b"".join(packet[20:] for packet in found[:-2]) == data
    numbers = [struct.unpack_from(">HHII", packet) for packet in found]
    assert all(len(packet) < 20_000 for packet in found)
    assert numbers[-2] == (PORT, 40_003, 1, 1 + len(data))
    assert numbers[-1] == (40_003, PORT, 1 + len(data), 7)


def test_tshark_names_api_version_and_correlation_id_of_each_frame(tmp_path: Path) -> None:
    if TSHARK is None:
        pytest.skip("no tshark: apt-get install tshark")
    sent = frame_pairs(28)
    file = tmp_path / "frames.pcap"
    file.write_bytes(pcap_of(sent))
    names = ("request_key", "response_key", "request.version", "response.version", "correlation_id")
    fields = [part for name in names for part in ("-e", f"kafka.{name}")]
    command = [TSHARK, "-r", str(file), "-Y", "kafka", "-T", "fields", "-E", "occurrence=f", *fields]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(shown) == 2 * len(sent)
    named = 0
    for (key, version, number, *_), request, response in zip(sent, shown[::2], shown[1::2], strict=True):
        assert request.split("\t") == [str(key.value), "", str(version), "", str(number)]
        with_name = response.split("\t") == ["", str(key.value), "", str(version), str(number)]
        # A request with a version or a value that tshark does not know is malformed to it: it names no response then.
        # test_tshark_fields.py says which versions it knows, and compares their fields.
        assert with_name or response.split("\t") == ["", "", "", "", str(number)]
        named += with_name
    assert named >= len(sent) * 3 // 4
