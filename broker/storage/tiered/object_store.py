"""Store of named, immutable objects: the interface of the backends of tiered storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class StoredObject(NamedTuple):
    """Entry of a listing of objects: name, size in bytes and time of the last modification."""

    name: str
    size_bytes: int
    modified_ms: int
    """Time of its last modification, in milliseconds since 1970."""


class ObjectStore(Protocol):
    """Interface of a store of objects by name. Calls block; a failure raises RemoteStorageError or a subclass of it."""

    def put(self, name: str, chunks: Iterator[bytes], minimum_bytes: int) -> None:
        """Store an object whole or not at all, durably; replaces an object of that name.

        An exception of ``chunks`` ends the upload, which leaves no object. After a failure of the store the object may
        exist all the same, if only the response was lost.

        Args:
            name: parts with slashes between them.
            chunks: the object's bytes.
            minimum_bytes: an estimate of their number, at most the exact one.
        """

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return bytes [start, end) of an object, fewer at its end.

        Raises RemoteResourceNotFoundError if it does not exist, CorruptRemoteSegmentError if it ends before ``start``.
        """

    def size(self, name: str) -> int:
        """Return the length of an object in bytes. Raises RemoteResourceNotFoundError if it does not exist."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``, which ends with a slash or is empty; their order is not defined."""

    def delete(self, name: str) -> None:
        """Delete an object durably; one that does not exist is no error."""
