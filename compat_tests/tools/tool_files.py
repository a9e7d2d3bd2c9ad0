"""Files that the scripts of Kafka's tools read: JSON, properties, and a copy of the logs of a node."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

from compat_tests.tools.kafka_tool_runs import SIDES
from ottla.wire.record_batch.crc import crc32c

_ROW = '{"topic": "SIDE.%s", "partition": %d, "offset": %d}'
_ROWS = '{"partitions": [%s, %s]}'
_MOVE = '{"topic": "SIDE.%s", "partition": %d, "replicas": %s%s}'
_MOVES = '{"version": 1, "partitions": [%s]}'
_TOPICS = '{"version": 1, "topics": [%s]}'
_TOPIC = '{"topic": "SIDE.%s"}'
FILES = {
    "list.json": "[1]",
    "empty.json": "{}",
    "text.json": "nonsense",
    "field.json": '{"partitions": [{"topic": "a", "partition": 0}]}',
    "type.json": '{"partitions": [{"topic": "a", "partition": "x", "offset": 0}]}',
    "version.json": '{"version": 2, "partitions": []}',
}
"""Files in the folder of a script."""
_LISTENERS = "listeners=CONTROLLER://127.0.0.1:19093\ncontroller.listener.names=CONTROLLER\n"
_CONTROLLER = f"process.roles=controller\nnode.id=1\n{_LISTENERS}"
_BOOTSTRAP = "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
SIDE_FILES = {
    ".properties": "retention.bytes = 5000\nsegment.bytes:2000000\n",
    ".csv": "SIDE.t,0,1\nSIDE.t,1,99\n",
    ".client": "client.id=x\n",
    ".delete.json": _ROWS % (_ROW % ("u", 0, 0), _ROW % ("t", 0, 999)),
    ".twice.json": _ROWS % (_ROW % ("u", 0, 0), _ROW % ("u", 0, 1)),
    ".elect.json": _ROWS % (_ROW % ("t", 0, 0), _ROW % ("t", 1, 0)),
    ".move.json": _MOVES % ", ".join(_MOVE % ("t", number, "[1]", "") for number in (0, 1)),
    ".none.json": _MOVES % (_MOVE % ("none", 0, "[1]", "")),
    ".number.json": _MOVES % (_MOVE % ("t", 7, "[1]", "")),
    ".broker.json": _MOVES % (_MOVE % ("t", 0, "[9]", "")),
    ".twice.move.json": _MOVES % ", ".join([_MOVE % ("t", 0, "[1]", "")] * 2),
    ".same.json": _MOVES % (_MOVE % ("t", 0, "[1, 1]", "")),
    ".no-replicas.json": _MOVES % (_MOVE % ("t", 0, "[]", "")),
    ".sizes.json": _MOVES % (_MOVE % ("t", 0, "[1]", ', "log_dirs": ["any", "/x"]')),
    ".text.json": _MOVES % (_MOVE % ("t", 0, '["x"]', "")),
    ".dirs.json": _MOVES % (_MOVE % ("t", 0, "[1]", ', "log_dirs": ["/no/such/directory"]')),
    ".here.json": _MOVES % (_MOVE % ("t", 0, "[1]", ', "log_dirs": ["DATA"]')),
    ".topics.json": _TOPICS % ", ".join(_TOPIC % name for name in ("t", "u")),
    ".twice.topics.json": _TOPICS % ", ".join([_TOPIC % "t"] * 2),
    ".none.topics.json": _TOPICS % (_TOPIC % "none"),
    ".server.properties": f"{_CONTROLLER}{_BOOTSTRAP}log.dirs=FOLDER/SIDE-a,FOLDER/SIDE-b\n",
    ".other.properties": f"{_CONTROLLER}{_BOOTSTRAP}log.dirs=FOLDER/SIDE-c\n",
    ".static.properties": f"{_CONTROLLER}controller.quorum.voters=1@127.0.0.1:19093\nlog.dirs=FOLDER/SIDE-d\n",
    ".negative.properties": f"{_LISTENERS}process.roles=controller\nnode.id=-1\nlog.dirs=FOLDER/SIDE-a\n",
    ".broker.properties": f"{_LISTENERS}process.roles=broker\nnode.id=1\nlog.dirs=FOLDER/SIDE-a\n",
    ".no-dirs.properties": _CONTROLLER,
    ".no-names.properties": "process.roles=controller\nnode.id=1\nlog.dirs=FOLDER/SIDE-a\n",
    ".no-listener.properties": (
        "process.roles=controller\nnode.id=1\nlog.dirs=FOLDER/SIDE-a\ncontroller.listener.names=OTHER\n"
    ),
}
"""Files of each side, by the ends of their names; SIDE stands for its first word, FOLDER and DATA for folders."""
_SEGMENT = "0" * 20


def write_files(folder: Path, data_dir: Path) -> None:
    """Write the files of both sides."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for side in SIDES:
        for name, text in SIDE_FILES.items():
            filled = text.replace("SIDE", side).replace("FOLDER", str(folder)).replace("DATA", str(data_dir))
            (folder / f"{side}{name}").write_text(filled)


def _partition_with(logs: Path, topic: str, text: bytes) -> str:
    """Return the name of the partition directory of a topic whose first segment contains a text."""
    return next(
        path.name for path in sorted(logs.glob(f"{topic}-*")) if text in (path / f"{_SEGMENT}.log").read_bytes()
    )


def copy_logs(data_dir: Path, folder: Path) -> dict[str, str]:
    """Copy the logs of a node, and make some that are damaged; return the directories of records by placeholder."""
    logs = folder / "logs"
    shutil.copytree(data_dir, logs, ignore=lambda _, names: [name for name in names if name == ".lock"])
    source = logs / "same.t-0" / f"{_SEGMENT}.log"
    (logs / "cut").mkdir()
    (logs / "cut" / source.name).write_bytes(source.read_bytes()[:-3])
    many = _many_batches(source.read_bytes(), 5)
    (logs / "many").mkdir()
    (logs / "many" / source.name).write_bytes(many[0])
    (logs / "many" / "00000000000000000005.log").write_bytes(source.read_bytes())
    positions = many[1]
    (logs / "many" / f"{_SEGMENT}.index").write_bytes(_entries(positions))
    (logs / "many" / f"{_SEGMENT}.timeindex").write_bytes(_times(positions, 0))
    (logs / "many" / "00000000000000000005.snapshot").write_bytes(_producers())
    (logs / "many" / f"{_SEGMENT}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 77, 1, 3, 4))
    shutil.copytree(logs / "many", logs / "mixed")
    (logs / "mixed" / f"{_SEGMENT}.index").write_bytes(_entries([(at, offset + 1) for at, offset in positions]))
    (logs / "mixed" / f"{_SEGMENT}.timeindex").write_bytes(_times(positions, 1))
    return {
        "offsets": _partition_with(logs, "__consumer_offsets", b"same-g"),
        "consumers": _partition_with(logs, "__consumer_offsets", b"same-new"),
        "classics": _partition_with(logs, "__consumer_offsets", b"same-live"),
        "transactions": _partition_with(logs, "__transaction_state", b"tx"),
        "shares": _partition_with(logs, "__share_group_state", b"same-sharing"),
    }


def _many_batches(raw: bytes, count: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a segment with the first batch of another one so many times, and position and last offset of each."""
    size = int.from_bytes(raw[8:12], "big") + 12
    delta = int.from_bytes(raw[23:27], "big")
    batches = [(number * (delta + 1)).to_bytes(8, "big") + raw[8:size] for number in range(count)]
    return b"".join(batches), [(number * size, number * (delta + 1) + delta) for number in range(count)]


def _producers() -> bytes:
    """Return a producer snapshot with a producer in a transaction, and one whose batches have been deleted."""
    rows = [(77, 1, 12, 1007, 2, 1_600_000_000_000, 3, 1005), (78, 0, -1, -1, 0, 1_600_000_000_001, -1, -1)]
    body = struct.pack(">i", len(rows)) + b"".join(struct.pack(">qhiqiqiq", *row) for row in rows)
    return struct.pack(">hI", 1, crc32c(body)) + body


def _entries(positions: Iterable[tuple[int, int]]) -> bytes:
    rows = [offset.to_bytes(4, "big") + at.to_bytes(4, "big") for at, offset in positions if at]
    return b"".join(rows)


def _times(positions: Iterable[tuple[int, int]], off: int) -> bytes:
    """Return a time index with the timestamp of the records, ``off`` milliseconds away."""
    rows = [
        (1_600_000_000_000 + number + off).to_bytes(8, "big") + offset.to_bytes(4, "big")
        for number, (at, offset) in enumerate(positions)
        if at
    ]
    return b"".join(rows)
