"""Interface and limits of the decoders of record keys and values, each of which has a schema."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.jobs.job import Job

MAX_DECODED_BYTES = 64 * 1024
"""Bytes of a key or value that are decoded by a schema: the libraries do not yield."""
MAX_DECODED_VALUES = 100_000
"""Fields and elements of a key or value that are decoded by a schema."""


class UndecodableValue(Exception):
    """Raised for a key or value that its schema does not describe, or that is too large; the message is the reason."""


class InvalidSchema(Exception):
    """Raised for a schema that cannot be used; the message is the reason."""


class ValueDecoder(Protocol):
    """Decoder of keys or values by one schema."""

    name: str
    """Type of the schema and name of its message, such as ``Avro shop.Order``."""

    def decode(self, raw: bytes, position: int) -> Job[Any]:
        """Return the value in ``raw[position:]`` as dicts, lists and scalars, as a job.

        Raises:
            UndecodableValue: the bytes are not exactly one value of the schema, or ``raw`` is larger than the limit.
        """


def check_size(raw: bytes, most: int = MAX_DECODED_BYTES) -> None:
    """Check that a key or value is small enough to be decoded.

    Raises:
        UndecodableValue: it is not.
    """
    if len(raw) > most:
        raise UndecodableValue(f"{len(raw):,} bytes; with this schema at most {most:,} are decoded")
