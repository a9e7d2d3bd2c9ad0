"""Settings of the remote store: URL, timeouts, verification and chunk cache.

A broker has them under the prefix ``rsm.config.`` (`remote.log.storage.manager.impl.prefix`), as Kafka passes settings
to its RemoteStorageManager plug-in; `store_values` removes the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.broker.storage.tiered.chunk_cache import MAX_READS_AHEAD, CachedRemoteStorage, ReadAhead
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.cloud_store import CloudStore, CloudStoreOptions, InvalidStoreError
from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.env.disk import Disk

DEFAULT_PREFIX = "rsm.config."
DIRECTORY_SCHEME = "file://"
MIN_PART_BYTES = 5 * 1024 * 1024
"""Least length of a part but the last in S3."""


@dataclass(frozen=True, slots=True)
class RemoteStoreSettings:
    """Settings of a remote store: URL, options of the cloud, verification of copies, and chunk cache."""

    url: str
    cloud_settings: Mapping[str, str] = field(default_factory=dict)
    cloud: CloudStoreOptions = field(default_factory=CloudStoreOptions)
    reads_back: bool = True
    """True if the records of each copy are read again and verified."""
    cache: ChunkCacheOptions | None = None
    """Options of the chunk cache, None for no cache."""


def store_values(settings: Mapping[str, str], prefix: str = DEFAULT_PREFIX) -> dict[str, str]:
    """Return the settings whose names begin with ``prefix``, by their names without it."""
    return {key[len(prefix) :]: value for key, value in settings.items() if key.startswith(prefix)}


def _integer(least: int, most: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(f"at least {least}")
        if most is not None and value > most:
            raise ValueError(f"at most {most}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


_CLOUD_KEYS: dict[str, tuple[str, Callable[[str], int]]] = {
    "request.timeout.ms": ("timeout_ms", _integer(1)),
    "connect.timeout.ms": ("connect_timeout_ms", _integer(1)),
    "retries": ("max_retries", _integer(0)),
    "retry.timeout.ms": ("retry_timeout_ms", _integer(1)),
    "retry.backoff.ms": ("retry_backoff_ms", _integer(1)),
    "upload.part.bytes": ("part_bytes", _integer(MIN_PART_BYTES)),
    "upload.parts.in.flight": ("max_parts_in_flight", _integer(1)),
}
_CACHE_KEYS: dict[str, tuple[str, Callable[[str], int]]] = {
    "chunk.cache.max.bytes": ("max_bytes", _integer(0)),
    "chunk.cache.chunk.bytes": ("chunk_bytes", _integer(4096)),
    "chunk.cache.read.ahead.chunks": ("read_ahead_chunks", _integer(0, MAX_READS_AHEAD)),
}
URL_KEY, VERIFY_KEY, CACHE_PATH_KEY = "url", "verify.copies", "chunk.cache.path"
CLOUD_PREFIX, CLIENT_PREFIX = "store.", "client."


def parse_store_settings(values: Mapping[str, str]) -> RemoteStoreSettings:
    """Parse the settings of a remote store, given without their prefix ``rsm.config.``.

    ``store.NAME`` is a setting of the cloud (obstore's names: ``store.endpoint``, ``store.region``), ``client.NAME``
    one of its HTTP client (``client.allow_http``).

    Raises:
        InvalidStoreError: a setting is unknown or invalid, or the URL is missing.
    """
    cloud: dict[str, int] = {}
    cache: dict[str, int] = {}
    cloud_settings, client = {}, {}
    reads_back = True
    for key, text in values.items():
        try:
            if key in _CLOUD_KEYS:
                name, parse = _CLOUD_KEYS[key]
                cloud[name] = parse(text)
            elif key in _CACHE_KEYS:
                name, parse = _CACHE_KEYS[key]
                cache[name] = parse(text)
            elif key == VERIFY_KEY:
                reads_back = _boolean(text)
            elif key.startswith(CLOUD_PREFIX):
                cloud_settings[key[len(CLOUD_PREFIX) :]] = text
            elif key.startswith(CLIENT_PREFIX):
                client[key[len(CLIENT_PREFIX) :]] = text
            elif key not in (URL_KEY, CACHE_PATH_KEY):
                raise InvalidStoreError(f"unknown setting of the remote store: {key}")
        except InvalidStoreError:
            raise
        except ValueError as error:
            raise InvalidStoreError(f"invalid setting of the remote store: {key}={text} ({error})") from None
    url, cache_path = values.get(URL_KEY, ""), values.get(CACHE_PATH_KEY, "")
    if not url:
        raise InvalidStoreError(f"the remote store has no URL: {URL_KEY}")
    if cache and not cache_path:
        raise InvalidStoreError(f"the chunk cache has no directory: {CACHE_PATH_KEY}")
    return RemoteStoreSettings(
        url,
        cloud_settings,
        CloudStoreOptions(**cloud, client=client),
        reads_back,
        ChunkCacheOptions(cache_path, **cache) if cache_path else None,
    )


def open_object_store(settings: RemoteStoreSettings, disk: Disk) -> ObjectStore:
    """Return the store for a URL: `DirectoryStore` for ``file:///path`` or an absolute path, else `CloudStore`.

    Raises:
        InvalidStoreError: the store cannot be opened with these settings.
    """
    url = settings.url
    if not url.startswith((DIRECTORY_SCHEME, "/")):
        return CloudStore(url, settings.cloud_settings, settings.cloud)
    path = url.removeprefix(DIRECTORY_SCHEME)
    if not path.startswith("/") or path.rstrip("/") == "":
        raise InvalidStoreError(f"no absolute path of a directory: {url}")
    unused = [*settings.cloud_settings, *settings.cloud.client]
    if unused:
        raise InvalidStoreError(f"setting does not apply to a directory: {unused[0]}")
    return DirectoryStore(disk, path)


def open_segment_store(settings: RemoteStoreSettings, disk: Disk) -> SegmentStore:
    """Return the store of segments without a cache; nothing is sent yet.

    Raises:
        InvalidStoreError: the store cannot be opened with these settings.
    """
    return SegmentStore(open_object_store(settings, disk), disk, reads_back=settings.reads_back)


def open_remote_storage(
    settings: RemoteStoreSettings, disk: Disk, read_ahead: ReadAhead | None = None
) -> SegmentStore | CachedRemoteStorage:
    """Return the store of segments, behind the chunk cache if the settings name its directory.

    Args:
        settings: parsed settings.
        disk: disk of the local segments and of the cache.
        read_ahead: runs a function in another thread, for chunks that are fetched ahead; None for none.

    Raises:
        InvalidStoreError: the store cannot be opened; OSError: the directory of the cache cannot be used.
    """
    store = open_segment_store(settings, disk)
    return store if settings.cache is None else CachedRemoteStorage(store, disk, settings.cache, read_ahead)
