"""Object store in the cloud, or compatible with one: S3, Google Cloud Storage, Azure Blob Storage, through obstore.

The library retries requests, each with a timeout. It waits without the interpreter lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from ottla.broker.storage.tiered.object_store import StoredObject
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_RETRIABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_ERROR_CHARS = 400


class CloudStoreOptions(NamedTuple):
    """Options of a `CloudStore` for all clouds: timeouts in ms, retries, and sizes of uploaded parts."""

    timeout_ms: int = 30_000
    """Time for one request with its data."""
    connect_timeout_ms: int = 5_000
    max_retries: int = 5
    """Further attempts of a request after a server error, a lost connection or a timeout."""
    retry_timeout_ms: int = 60_000
    """Time after the start of a request in which it is retried."""
    retry_backoff_ms: int = 100
    part_bytes: int = 8 * 1024 * 1024
    """Bytes of a part of an upload. A shorter object is sent in one request."""
    max_parts_in_flight: int = 4
    client: Mapping[str, str] = {}
    """Settings of obstore's HTTP client, such as ``allow_http``, ``proxy_url``, ``root_certificate``."""


class InvalidStoreError(ValueError):
    """Raised if no store can be opened with a URL or an option; the message names it."""


def _import_obstore() -> tuple[Any, Any]:
    try:
        # lazy: 2.4 ms, 4900 kB: only with tiered storage in a cloud
        import obstore
        import obstore.store
    except ImportError:
        raise InvalidStoreError("object stores need the package obstore: pip install 'ottla[tiered]'") from None
    return obstore, obstore.store


def _short(error: BaseException) -> str:
    """Return the first line of the library's message, cut, and without the document that the server returned."""
    text = str(error).partition("\n\nDebug source")[0].partition("<?xml")[0].partition("\n")[0]
    return text.strip().rstrip(":")[:MAX_ERROR_CHARS]


class CloudStore:
    """`ObjectStore` in a bucket or container of a cloud, through obstore."""

    def __init__(self, url: str, settings: Mapping[str, str], options: CloudStoreOptions | None = None) -> None:
        """Open a store; nothing is sent yet.

        Args:
            url: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, or an https URL.
            settings: obstore's settings of the cloud, such as ``endpoint``, ``region``, ``access_key_id``.
            options: timeouts and sizes.

        Raises:
            InvalidStoreError: the package is missing, or URL or settings are invalid.
        """
        self._options = options = options or CloudStoreOptions()
        self._obstore, stores = _import_obstore()
        try:
            self._store = stores.from_url(
                url,
                client_options={
                    "timeout": f"{options.timeout_ms}ms",
                    "connect_timeout": f"{options.connect_timeout_ms}ms",
                    **options.client,
                },
                retry_config={
                    "max_retries": options.max_retries,
                    "retry_timeout": timedelta(milliseconds=options.retry_timeout_ms),
                    "backoff": {"init_backoff": timedelta(milliseconds=options.retry_backoff_ms)},
                },
                **settings,
            )
        except (self._obstore.exceptions.BaseError, ValueError, TypeError) as error:
            raise InvalidStoreError(f"cannot open the store {url}: {_short(error)}") from None

    def put(self, name: str, chunks: Iterator[bytes], minimum_bytes: int) -> None:
        """Upload an object whole or not at all; in parts if ``minimum_bytes`` is more than ``part_bytes``.

        A failed upload in parts is aborted. A process that ends during an upload leaves parts, which a lifecycle rule
        of the bucket has to remove. Arguments and errors are those of `ObjectStore.put`.
        """
        options = self._options
        with self._remote_errors(name):
            if minimum_bytes <= options.part_bytes:
                self._obstore.put(self._store, name, b"".join(chunks), use_multipart=False)
            else:
                self._obstore.put(
                    self._store,
                    name,
                    chunks,
                    use_multipart=True,
                    chunk_size=options.part_bytes,
                    max_concurrency=options.max_parts_in_flight,
                )

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return bytes [start, end) of an object, fewer at its end; errors are those of `ObjectStore.get_range`."""
        if start >= end:
            return b""
        with self._remote_errors(name):
            return bytes(self._obstore.get_range(self._store, name, start=start, end=end))

    def size(self, name: str) -> int:
        """Return the length of an object in bytes. Raises RemoteResourceNotFoundError if it does not exist."""
        with self._remote_errors(name):
            return int(self._obstore.head(self._store, name)["size"])

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``, with one request for each thousand. Raises RemoteStorageError."""
        with self._remote_errors(prefix or "listing"):
            for page in self._obstore.list(self._store, prefix.rstrip("/") or None):
                for each in page:
                    modified_ms = int(each["last_modified"].timestamp() * 1000)
                    yield StoredObject(each["path"], each["size"], modified_ms)

    def delete(self, name: str) -> None:
        """Delete an object; one that does not exist is no error. Raises RemoteStorageError if the store fails."""
        try:
            with self._remote_errors(name):
                self._obstore.delete(self._store, name)
        except RemoteResourceNotFoundError:
            return

    @contextmanager
    def _remote_errors(self, name: str) -> Iterator[None]:
        """Context manager that replaces an exception of obstore in its block by the matching `RemoteStorageError`.

        ``name`` is the object of the message.
        """
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise RemoteStorageError(f"bucket does not exist: {_short(error)}") from None
            raise RemoteResourceNotFoundError(f"object does not exist: {name}") from None
        except self._obstore.exceptions.GenericError as error:
            raise _generic_error(name, error) from None
        except (self._obstore.exceptions.BaseError, PermissionError) as error:
            raise RemoteStorageError(f"{name}: {_short(error)}") from None
        except OSError as error:
            raise RetriableRemoteStorageError(f"{name}: {_short(error)}") from None


def _generic_error(name: str, error: BaseException) -> RemoteStorageError:
    """Return the error for a failed request: retriable, unless the client is at fault by the HTTP status.

    A range behind the end of the object gives CorruptRemoteSegmentError.
    """
    found = _STATUS.search(str(error))
    status = int(found[1]) if found else 0
    if status == 416:
        return CorruptRemoteSegmentError(f"object is truncated: {name} (the range is beyond its end)")
    if 400 <= status < 500 and status not in _RETRIABLE_STATUS:
        return RemoteStorageError(f"{name}: {_short(error)}")
    return RetriableRemoteStorageError(f"{name}: {_short(error)}")
