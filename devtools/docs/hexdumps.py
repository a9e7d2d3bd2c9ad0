"""Generator of the hex dumps in ``docs/explanation/on-disk-format.md``, by the code that writes the files.

``python -m devtools.docs.hexdumps`` writes them into the blocks of the page that begin with ```` ```text FILE ````.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.file_dump import file_spans
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.wire import field_dump
from ottla.wire.record_batch import batch_header, records

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "on-disk-format.md"
NOW = 1_767_225_600_000
"""2026-01-01."""
BLOCK = re.compile(r"^```text (\S+)\n(.*?)^```$", re.M | re.S)


def example_files() -> dict[str, bytes]:
    """Return the files of a data directory by their paths in it, after a clean stop; they are only in memory.

    Its partition has a plain record and an aborted transaction of two records.
    """
    memory = MemoryDisk(random.Random(1), lambda: NOW)
    directory = LogDirectory(memory.session(), "/data")
    directory.lock()
    directory.write_meta_properties(MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, bytes(range(16))), NOW)
    directory.load_checkpoints()
    settings = LogConfig(index_interval_bytes=50)
    log = directory.create_partition("events", 0, bytes(range(16, 32)), settings, NOW)
    plain = records.build_batch([records.NewRecord(b"car-7", b"21.5", NOW, (("unit", b"C"),))])
    log.append_as_leader(bytearray(plain), 0, NOW)
    for number in range(2):
        transactional = records.build_batch(
            [records.NewRecord(None, b"%d" % number, NOW + 1 + number)],
            attributes=batch_header.TRANSACTIONAL_BIT,
            producer_id=1000,
            producer_epoch=0,
            base_sequence=number,
        )
        log.append_as_leader(bytearray(transactional), 0, NOW, txn=TxnAppendContext(VERIFICATION_DISABLED))
    abort = records.build_batch(
        [records.NewRecord(b"\0\0\0\0", b"\0\0\0\0\0\0", NOW + 5)],
        attributes=batch_header.TRANSACTIONAL_BIT | batch_header.CONTROL_BIT,
        producer_id=1000,
        producer_epoch=0,
        base_sequence=-1,
    )
    log.append_as_leader(bytearray(abort), 0, NOW, AppendOrigin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)
    directory.close(7)
    return {path.removeprefix("/data/"): bytes(inode.data) for path, inode in memory.files.items()}


def format_file(name: str, raw: bytes) -> list[str]:
    """Return the lines of a file on the page: its fields with their bytes, or its text; ``name`` decides the format."""
    spans = file_spans(raw, "." + name.rpartition(".")[2])
    if spans is not None:
        return list(field_dump.format_spans(list(spans), raw))
    if name.endswith(".log"):
        return list(field_dump.format_spans(list(field_dump.batch_spans(raw)), raw))
    return raw.decode().splitlines()


def render_page(text: str) -> str:
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page.

    Raises:
        KeyError: A block names an unknown file.
    """
    made = example_files()
    return BLOCK.sub(
        lambda m: "```text " + m[1] + "\n" + "".join(f"{x}\n" for x in format_file(m[1], made[m[1]])) + "```", text
    )


def main() -> None:
    """Write all generated blocks into the page."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
