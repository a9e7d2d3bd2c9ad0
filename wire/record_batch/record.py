"""Records as values, as read from batches and as given to batch builders."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """Record of a batch. ``timestamp_ms`` is -1 without a timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: Headers = ()
