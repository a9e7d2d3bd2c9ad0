"""Node with three log directories and a partition in the first; its controller applies reported assignments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio

from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
from ottla.broker.replication.alter_log_dirs.future_log_recovery import recover_future_logs
from ottla.broker.replication.alter_log_dirs.future_replica_copier import FutureReplicaCopier
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.tests.broker_storage_fixture import BrokerStorageFixture, led_topic
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode
from ottla.wire.record_batch import records

TOPIC_PARTITION = ("t", 0)
NO_ERROR = ErrorCode.NONE


class LogDirMovesFixture(BrokerStorageFixture):
    """Storage components, and those that move partitions between directories."""

    def __init__(self, directories: str = "/a,/b,/c", *, obeys: bool = True, env: Any = None, **settings: str) -> None:
        super().__init__(directories, env=env, **settings)
        self.assigns_directories = obeys
        """Whether what the controller is told is committed."""
        self.flush_due: Callable[[HostedPartition], None] = lambda replica: None
        self.replica_manager._flush_due = lambda replica: self.flush_due(replica)  # noqa: PLW0108 - a test sets it later
        self.replica_manager.on_directory_changed = self._on_directory_changed
        self.copier = FutureReplicaCopier(
            self.env, self.config, self.log_dirs, self.replica_manager, self.failure_handler.handle_failure
        )
        args = (
            self.env,
            self.log_dirs,
            self.replica_manager,
            self.copier,
            self.log_creator.set_preferred_directory,
            self.failure_handler.handle_failure,
        )
        self.alter_log_dirs = AlterLogDirs(*args)
        self.publisher.subscribe(self.copier.publish)
        self.replica_manager.on_future_log_resumed = self.copier.start_copy
        self.ids = [d.id for d in self.log_dirs.directories]

    def _on_directory_changed(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        self.reported_directories.append((topic_id, number, directory_id))
        if self.assigns_directories:
            self.commit(directory_id)

    def commit(self, directory_id: bytes, **more: int) -> None:
        """Commit the assignment of the partition to that directory."""
        known = self.image.topics["t"]
        registration = replace(known.partitions[0], directories=(directory_id,), **more)
        self.commit_topics(replace(known, partitions={0: registration}))

    def create_partition(self, directory: int = 0) -> None:
        """Create the topic in that directory."""
        known = led_topic("t", 1)
        registration = replace(known.partitions[0], directories=(self.ids[directory],))
        self.commit_topics(replace(known, partitions={0: registration}))

    @property
    def replica(self) -> HostedPartition:
        found = self.replica_manager.get(*TOPIC_PARTITION)
        assert found is not None
        return found

    @property
    def future_log(self) -> PartitionLog:
        return self.replica_manager.future_logs[TOPIC_PARTITION]

    def serving_directory(self) -> str:
        """Return the directory that serves the partition."""
        return self.log_dirs.directory_of(self.replica.log).path

    def write(self, count: int = 1, size_bytes: int = 100) -> None:
        for _ in range(count):
            raw = bytearray(records.build_batch([records.NewRecord(None, bytes(size_bytes), self.env.now_ms())]))
            self.replica.append(raw, self.env.now_ms())

    async def open(self) -> None:
        """Start the process."""
        await run_in_background(self.env, self.replica_manager.load(self.image))
        if self.replica_manager.has_leftover_future_logs:
            await run_in_background(
                self.env, recover_future_logs(self.env, self.config, self.replica_manager, self.log_dirs, self.image)
            )

    async def until(self, is_so: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            while not is_so():  # noqa: ASYNC110 - what is waited for tells nobody
                await trio.sleep(0.001)

    async def alter_and_wait(self, path: str) -> None:
        await self.until(lambda: self.serving_directory() == path)

    def run_moves(self, scenario: Callable[[], Awaitable[None]], *, made: bool = True) -> None:
        """Run a scenario beside all tasks, with the partition created before."""

        async def whole() -> None:
            if made:
                self.create_partition()
                await self.publisher.wait_applied_and_created()
                self.reported_directories.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.copier.run)
                await scenario()
                nursery.cancel_scope.cancel()

        self.run(whole)

    def directory_names(self, path: str) -> list[str]:
        """Return the suffixes of the partition's directories in a log directory."""
        names = (name for name in self.env.disk.listdir(path) if name.startswith("t-0"))
        return sorted(name.rpartition("-")[2] for name in names)
