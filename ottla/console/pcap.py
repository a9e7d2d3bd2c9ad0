"""Files in pcap format with Kafka frames, for Wireshark: IP and TCP headers are made up around each frame.

Source: draft-ietf-opsawg-pcap (file format), RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

MEDIA_TYPE = "application/vnd.tcpdump.pcap"
_MAGIC_MICROSECONDS = 0xA1B2C3D4
_LINKTYPE_RAW = 101
"""Packets begin with an IPv4 or IPv6 header."""
_MAX_PACKET_BYTES = 65_535
_SEGMENT_BYTES = 16 * 1024
_FLAGS_PSH_ACK = 0x18
_TCP = 6
_HOP_LIMIT = 64
_FIRST_CLIENT_PORT = 40_000
_CLIENT_PORTS = 20_000

_Address = IPv4Address | IPv6Address


class PcapFrame(NamedTuple):
    """Frame with its length prefix, sent by the client or by the node."""

    connection: int
    """Number of the connection, from which the port of the client is derived."""
    client_host: str
    server: tuple[str, int]
    """Address and port of the node."""
    is_request: bool
    time_ms: float
    """Time in milliseconds since 1970."""
    frame: bytes


def write_pcap(frames: Iterable[PcapFrame]) -> Iterator[bytes]:
    """Yield the parts of a pcap file: its header, then the frames in the given order, in segments of 16 KiB."""
    yield struct.pack("<IHHiIII", _MAGIC_MICROSECONDS, 2, 4, 0, 0, _MAX_PACKET_BYTES, _LINKTYPE_RAW)
    sent: dict[tuple[int, bool], int] = {}
    for each in frames:
        for begin in range(0, len(each.frame), _SEGMENT_BYTES):
            data = each.frame[begin : begin + _SEGMENT_BYTES]
            direction, opposite = (each.connection, each.is_request), (each.connection, not each.is_request)
            sequence, acknowledged = sent.get(direction, 1), sent.get(opposite, 1)
            sent[direction] = sequence + len(data)
            packet = _packet(each, data, sequence, acknowledged)
            microseconds = int(each.time_ms * 1000)
            seconds, rest = divmod(microseconds, 1_000_000)
            yield struct.pack("<IIII", seconds & 0xFFFFFFFF, rest, len(packet), len(packet)) + packet


def _packet(each: PcapFrame, data: bytes, sequence: int, acknowledged: int) -> bytes:
    client, server = _addresses(each.client_host, each.server[0])
    client_port = _FIRST_CLIENT_PORT + each.connection % _CLIENT_PORTS
    source, target, ports = client, server, (client_port, each.server[1])
    if not each.is_request:
        source, target, ports = server, client, (each.server[1], client_port)
    header = struct.pack(
        ">HHIIBBHHH", *ports, sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF, 5 << 4, _FLAGS_PSH_ACK, 65_535, 0, 0
    )
    pseudo_header = source.packed + target.packed + struct.pack(">IHBB", len(header) + len(data), 0, 0, _TCP)
    if isinstance(source, IPv4Address):
        pseudo_header = source.packed + target.packed + struct.pack(">BBH", 0, _TCP, len(header) + len(data))
    checksum = _checksum(pseudo_header + header + data)
    segment = header[:16] + struct.pack(">H", checksum) + header[18:] + data
    return _ip_header(source, target, len(segment)) + segment


def _ip_header(source: _Address, target: _Address, size: int) -> bytes:
    """Return the IP header of a TCP segment of ``size`` bytes."""
    if isinstance(source, IPv6Address):
        return struct.pack(">IHBB", 6 << 28, size, _TCP, _HOP_LIMIT) + source.packed + target.packed
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, _HOP_LIMIT, _TCP, 0)
    addresses = source.packed + target.packed
    return header[:10] + struct.pack(">H", _checksum(header + addresses)) + addresses


def _addresses(client: str, server: str) -> tuple[_Address, _Address]:
    """Return both hosts as addresses of the same IP version: an IPv4 address beside an IPv6 one is mapped to IPv6.

    A host that is a name becomes 127.0.0.1.
    """
    found = [_address(client), _address(server)]
    if found[0].version != found[1].version:
        found = [IPv6Address(f"::ffff:{each}") if isinstance(each, IPv4Address) else each for each in found]
    return found[0], found[1]


def _address(host: str) -> _Address:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return IPv4Address("127.0.0.1")
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _checksum(data: bytes) -> int:
    """Return the checksum of IP and TCP: the complement of the sum of 16-bit words in one's complement."""
    words = struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2))
    total: int = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
