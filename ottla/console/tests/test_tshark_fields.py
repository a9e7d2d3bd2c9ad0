"""Fields of saved frames in tshark and on the console: byte range, name and value of each are the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from ottla.console.frame_fields import FrameField, request_fields, response_fields
from ottla.console.tests.saved_frames import FramePair, finish, frame_pairs, pcap_of
from ottla.console.tests.tshark_knowledge import KNOWN, MISREAD, NAMES
from ottla.wire.api_keys import ApiKey

TSHARK = shutil.which("tshark")
MIN_FIELDS = 10_000
SEEDS = range(4)
"""Several values of each frame, as tshark gives up a frame with a value that it misreads, such as a null array."""


class ComparedFrame(NamedTuple):
    """Kind of a frame."""

    key: ApiKey
    version: int
    is_request: bool


class ReadField(NamedTuple):
    """Field that tshark names in a frame: name, byte range in the frame, value as text, and its bytes."""

    name: str
    start: int
    stop: int
    shown: str
    raw: bytes


def read_frames(file: Path) -> list[list[ReadField] | None]:
    """Return the fields that tshark finds in each frame of a file; None for a frame that it cannot read to its end."""
    command = [str(TSHARK), "-r", str(file), "-Y", "kafka", "-T", "pdml"]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
    return [_fields_of(packet) for packet in ElementTree.fromstring(text).iter("packet")]


def _fields_of(packet: ElementTree.Element) -> list[ReadField] | None:
    names = {each.get("name", "") for each in packet.iter()}
    if names & {"_ws.expert", "_ws.malformed"}:
        return None
    found = [each for each in packet.iter("field") if each.get("name", "").startswith("kafka.") and not len(each)]
    begin = next(int(each.get("pos", "")) for each in found if each.get("name") == "kafka.len")
    out = []
    for each in found:
        start = int(each.get("pos", "")) - begin
        raw = bytes.fromhex(each.get("unmaskedvalue") or each.get("value", ""))
        stop = start + int(each.get("size", ""))
        out.append(ReadField(each.get("name", "").removeprefix("kafka."), start, stop, each.get("show", ""), raw))
    return [each for each in out if each.stop > each.start and not each.name.startswith("tagged_field")]


def is_same_value(ours: str, read: ReadField) -> bool:
    """Return True if both texts are of one value: tshark has other forms of null, truth, bytes, bits and times."""
    hidden = re.fullmatch(r"\(([\d,]+) bytes\)", ours)
    if hidden is not None:
        return not any(read.raw[-int(hidden[1].replace(",", "")) :])
    if read.shown == "[ Null ]":
        return ours == "null"
    if ours in ("True", "False"):
        return read.shown == str(int(ours == "True"))
    if re.fullmatch(r"0x[0-9a-f]+ .*", ours):  # attributes or CRC of a batch
        return int(ours.partition(" ")[0], 16) == int.from_bytes(read.raw, "big")
    number = re.fullmatch(r"(-?\d+)( \(\w+\))?", ours)
    if number is None:
        return _without_cut(ours, read.shown)
    if read.name == "message_timestamp":  # of a record: the console shows the delta, a zigzag varint
        return read.raw[0] == 2 * int(ours)
    return number[1] == read.shown or int(number[1]) == int.from_bytes(read.raw, "big", signed=True)


def _without_cut(ours: str, shown: str) -> bool:
    text = shown.replace(":", " ") if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2})*", shown) else shown
    return text.startswith(ours.removesuffix("…")) if ours.endswith("…") else text == ours


def differences(read: list[ReadField], ours: list[FrameField]) -> list[str]:
    """Return a text for each field of tshark that the console shows at other bytes, by another name or value."""
    at = {(each.start, each.stop): each for each in ours}
    out = []
    for each in read:
        mine = at.get((each.start, each.stop))
        if mine is None:
            out.append(f"{each}: no field at these bytes")
            continue
        name = re.sub(r"\[\d+\]", "", mine.path).rpartition(".")[2]
        if name not in NAMES.get(each.name, "").split():
            out.append(f"{each}: name {name}")
        elif not is_same_value(mine.value, each):
            out.append(f"{each}: value {mine.value}")
    return out


def fields_on_the_console(each: FramePair, *, is_request: bool) -> list[FrameField]:
    """Return the fields that the console shows of a frame."""
    job = request_fields if is_request else response_fields
    fields: list[FrameField] = finish(job(each.key, each.version, each.request if is_request else each.response)).fields
    return fields


def is_known_tshark() -> bool:
    """Return True if tshark 4.0 is installed; others name more fields, and misread other frames."""
    if TSHARK is None:
        return False
    return " 4.0." in subprocess.run([TSHARK, "--version"], capture_output=True, text=True, check=False).stdout


def known_frames(sent: list[FramePair]) -> set[ComparedFrame]:
    """Return the frames that tshark reads to their end with any values."""
    frames = {ComparedFrame(each.key, each.version, is_request) for each in sent for is_request in (True, False)}
    return {
        each
        for each in frames
        if each.version <= KNOWN.get(each.key, -1) and each.version not in MISREAD.get((each.key, each.is_request), ())
    }


@pytest.mark.skipif(not is_known_tshark(), reason="no tshark 4.0, which `KNOWN` describes: apt-get install tshark")
def test_fields_in_tshark_equal_those_on_the_console(tmp_path: Path) -> None:
    """Frames that tshark does not read to their end are left out; each of `known_frames` is compared at least once."""
    compared, count = set(), 0
    for seed in SEEDS:
        sent = frame_pairs(seed)
        file = tmp_path / f"{seed}.pcap"
        file.write_bytes(pcap_of(sent))
        frames = read_frames(file)
        assert len(frames) == 2 * len(sent)
        for number, read in enumerate(frames):
            each, is_request = sent[number // 2], number % 2 == 0
            if read is not None:
                compared.add(ComparedFrame(each.key, each.version, is_request))
                assert differences(read, fields_on_the_console(each, is_request=is_request)) == [], each[:3]
                count += len(read)
    assert known_frames(sent) - compared == set()
    assert count > MIN_FIELDS
