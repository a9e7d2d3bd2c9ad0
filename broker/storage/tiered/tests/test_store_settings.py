"""Settings of the remote store: every key parsed, every mistake named."""

from __future__ import annotations

import random

import pytest

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.cloud_store import CloudStore, CloudStoreOptions, InvalidStoreError
from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.store_settings import (
    open_object_store,
    open_remote_storage,
    parse_store_settings,
    store_values,
)
from ottla.env.memory_disk import DiskSession, MemoryDisk


def disk() -> DiskSession:
    return MemoryDisk(random.Random(0), lambda: 0).session()


def test_settings_with_the_prefix_are_parsed() -> None:
    values = store_values(
        {
            "rsm.config.url": "s3://bucket/prefix",
            "rsm.config.store.region": "eu-central-1",
            "rsm.config.client.allow_http": "true",
            "rsm.config.request.timeout.ms": "1000",
            "rsm.config.connect.timeout.ms": "200",
            "rsm.config.retries": "0",
            "rsm.config.retry.timeout.ms": "3000",
            "rsm.config.retry.backoff.ms": "7",
            "rsm.config.upload.part.bytes": "6000000",
            "rsm.config.upload.parts.in.flight": "2",
            "rsm.config.verify.copies": "false",
            "rsm.config.chunk.cache.path": "/cache",
            "rsm.config.chunk.cache.max.bytes": "1000000",
            "rsm.config.chunk.cache.chunk.bytes": "65536",
            "rsm.config.chunk.cache.read.ahead.chunks": "3",
            "log.dirs": "/data",
        }
    )
    settings = parse_store_settings(values)
    assert settings.url == "s3://bucket/prefix"
    assert settings.cloud_settings == {"region": "eu-central-1"}
    assert settings.cloud == CloudStoreOptions(1000, 200, 0, 3000, 7, 6_000_000, 2, {"allow_http": "true"})
    assert not settings.reads_back
    assert settings.cache == ChunkCacheOptions("/cache", 1_000_000, 65536, 3)


def test_settings_without_values_have_the_documented_defaults() -> None:
    """The defaults are those of docs/reference/segment-objects.md."""
    settings = parse_store_settings({"url": "s3://bucket", "chunk.cache.path": "/cache"})
    assert settings.cloud == CloudStoreOptions(30_000, 5_000, 5, 60_000, 100, 8_388_608, 4, {})
    assert settings.cache == ChunkCacheOptions("/cache", 1_073_741_824, 4_194_304, 1)
    assert settings.reads_back


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "the remote store has no URL: url"),
        ({"url": "/x", "urll": "/y"}, "unknown setting of the remote store: urll"),
        ({"url": "/x", "retries": "many"}, "invalid setting of the remote store: retries=many"),
        ({"url": "/x", "retries": "-1"}, r"retries=-1 \(at least 0\)"),
        ({"url": "/x", "chunk.cache.read.ahead.chunks": "9"}, r"chunks=9 \(at most 8\)"),
        ({"url": "/x", "verify.copies": "maybe"}, "true or false"),
        ({"url": "/x", "upload.part.bytes": "1"}, "at least 5242880"),
        ({"url": "/x", "chunk.cache.max.bytes": "1"}, "the chunk cache has no directory: chunk.cache.path"),
    ],
)
def test_invalid_setting_is_named(values: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidStoreError, match=message):
        parse_store_settings(values)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/mnt/tier", DirectoryStore),
        ("file:///mnt/tier", DirectoryStore),
        ("s3://bucket/prefix", CloudStore),
        ("gs://bucket", CloudStore),
        ("az://container", CloudStore),
    ],
)
def test_url_chooses_the_backend(url: str, kind: type) -> None:
    values = {"url": url, **({"store.account_name": "a"} if url.startswith("az") else {})}
    assert type(open_object_store(parse_store_settings(values), disk())) is kind


@pytest.mark.parametrize("url", ["file://relative", "file://", "/", "relative/path", "ftp://host/x"])
def test_url_of_no_store_is_rejected(url: str) -> None:
    with pytest.raises(InvalidStoreError):
        open_object_store(parse_store_settings({"url": url}), disk())


def test_setting_of_a_cloud_for_a_directory_is_rejected() -> None:
    with pytest.raises(InvalidStoreError, match="setting does not apply to a directory: region"):
        open_object_store(parse_store_settings({"url": "/x", "store.region": "r"}), disk())


def test_cache_is_opened_if_it_has_a_directory() -> None:
    plain = open_remote_storage(parse_store_settings({"url": "/mnt/tier"}), disk())
    assert type(plain) is SegmentStore
    cached = open_remote_storage(parse_store_settings({"url": "/mnt/tier", "chunk.cache.path": "/cache"}), disk())
    assert type(cached) is CachedRemoteStorage
