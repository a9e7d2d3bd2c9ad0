"""Remote stores of tiered storage for tests and benchmarks: a directory, or an S3-compatible server in a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.broker.storage.tiered.cloud_store import CloudStore, CloudStoreOptions
from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.broker.storage.tiered.tests.s3_server import running_server
from ottla.runtime.real_disk import RealDisk

BUCKET_URL = "s3://segments"
CREDENTIALS = {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"}


@contextmanager
def object_store(directory: Path, *, s3: bool) -> Iterator[tuple[ObjectStore, dict[str, str]]]:
    """Yield an empty store, and the broker settings that name it.

    Args:
        directory: parent of the store's directory, which is created.
        s3: use an S3-compatible server (moto), which runs in another process until the end, instead of a directory.
    """
    if not s3:
        (directory / "store").mkdir()
        yield DirectoryStore(RealDisk(), str(directory / "store")), {"rsm.config.url": f"file://{directory}/store"}
        return
    command = [sys.executable, "-m", "compat_tests.support.object_stores"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        settings = {**CREDENTIALS, "endpoint": server.stdout.readline().strip()}
        store = CloudStore(BUCKET_URL, settings, CloudStoreOptions(client={"allow_http": "true"}))
        named = {f"rsm.config.store.{name}": value for name, value in settings.items()}
        try:
            yield store, {"rsm.config.url": BUCKET_URL, "rsm.config.client.allow_http": "true", **named}
        finally:
            server.stdin.close()


def main() -> None:
    """Run an S3 server until standard input ends; print its endpoint."""
    with running_server() as server:
        print(server.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
