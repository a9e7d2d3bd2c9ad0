"""Record that a client has read from a topic, as `ottla.tools.blocking_client` returns it."""

from __future__ import annotations

from typing import NamedTuple


class TopicRecord(NamedTuple):
    """Record read from a topic; None stands for no key, and for a null value."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""
    offset: int
    """Offset of the record in its partition."""
    timestamp_ms: int
    """Timestamp in milliseconds since 1970: of the producer, or of the append if the topic has ``LogAppendTime``."""
    key: bytes | None
    """Key, or None."""
    value: bytes | None
    """Value; None for a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and values of the headers, in their order; a name may occur more than once."""

    @property
    def text(self) -> str | None:
        """Value of the record, decoded as UTF-8; None for a null value.

        Raises:
            UnicodeDecodeError: the value is not UTF-8.
        """
        return None if self.value is None else self.value.decode()
