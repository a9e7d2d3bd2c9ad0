"""Value types of records: as read from a batch, and as passed to `records.build_batch`."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """Record read from a batch; ``timestamp_ms`` is -1 without a timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """Record to be encoded into a batch, without an offset; ``timestamp_ms`` is -1 without a timestamp."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: Headers = ()
