"""The thin shell around the controller machine: it appends what the machine decides, syncs, replays, and answers.

One submission at a time: a decision is made against an image that holds everything decided before it. The image a
broker sees is only ever one of committed records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from ottla.controller.brokers import SUPPORTED_FEATURES, Register, Resign, ShutDown, Unfence
from ottla.controller.config_rules import MIN_ISR
from ottla.controller.decision import Defaults, Submission
from ottla.controller.delta import Listener
from ottla.controller.format import BOOTSTRAP_FILE, Endpoint, bootstrap_records
from ottla.controller.image import RESOURCE_BROKER, Image, records_of
from ottla.controller.machine import ControllerMachine
from ottla.controller.quorum import NotOurQuorum, SoleVoter
from ottla.controller.records import METADATA_VERSION, NEWEST_METADATA_VERSION, OLDEST_METADATA_VERSION
from ottla.controller.snapshots import read_snapshot
from ottla.log.directory import Identity, LogDirectory
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.world.env import Env, Lane

logger = logging.getLogger("ottla.controller")
SNAPSHOT_AFTER_BYTES = 20 * 1024 * 1024


class Controller:
    """The active controller of a quorum of one."""

    def __init__(
        self,
        env: Env,
        directory: LogDirectory,
        identity: Identity,
        defaults: Defaults,
        fail: Callable[[OSError], None],
    ) -> None:
        self._env = env
        self._fail = fail
        self._directory = directory
        self._identity = identity
        self.machine = ControllerMachine(defaults, env.uuid, identity.node_id)
        self.listeners: list[Listener] = []
        """Called with the image and its delta after each commit, before the answer leaves."""
        self._lock = trio.Lock()
        self._quorum = SoleVoter(env.disk, directory.path, identity, env.now_ms())

    @property
    def image(self) -> Image:
        """The newest committed image."""
        return self.machine.image

    @property
    def node_id(self) -> int:
        """The sole voter."""
        return self._identity.node_id

    @property
    def directory_id(self) -> bytes:
        """Where the sole voter keeps the metadata log."""
        return self._identity.directory_id

    @property
    def epoch(self) -> int:
        """The quorum's leader epoch."""
        return self._quorum.epoch

    @property
    def kraft_version(self) -> int:
        """0 where the voters are fixed by configuration, 1 where they are records."""
        return self._quorum.kraft_version

    @property
    def log_end_offset(self) -> int:
        """End of the metadata log."""
        return self._quorum.log.log_end_offset

    def load(self) -> None:
        """Read snapshot and log.

        Raises:
            NotOurQuorum: this node may not lead alone, or the metadata version is too old.
            CorruptFile, WireError: the metadata cannot be read.
        """
        quorum = self._quorum
        for record in quorum.snapshot.records:
            self.machine.replay(-1, record)
        last = quorum.snapshot_id.end_offset - 1
        for offset, record in quorum.replay():
            self.machine.replay(offset, record)
            last = offset
        quorum.check_alone()
        self.machine.kraft_version = quorum.kraft_version
        quorum.committed(quorum.log.log_end_offset)
        image, _ = self.machine.publish(last, quorum.epoch)
        level = image.features.get(METADATA_VERSION)
        if level is not None and not OLDEST_METADATA_VERSION <= level <= NEWEST_METADATA_VERSION:
            raise NotOurQuorum(
                f"the cluster's metadata.version is {level}; this node knows "
                f"{OLDEST_METADATA_VERSION} to {NEWEST_METADATA_VERSION}"
            )

    async def lead(self, controller: Endpoint) -> None:
        """Take over leadership, end an open metadata transaction, write the first records of a new cluster."""
        self._quorum.lead(self._env.now_ms())
        await self._sync()
        if self.machine.in_transaction:
            await self._commit([m.AbortTransactionRecord("the controller was replaced")])
        if METADATA_VERSION not in self.image.features:
            await self._commit(self._first_records())
        await self._commit([self._registration(controller)])

    def _first_records(self) -> list[Message]:
        path = f"{self._directory.path}/{BOOTSTRAP_FILE}"
        levels = read_snapshot(self._env.disk, path).records if self._env.disk.exists(path) else bootstrap_records()
        return [
            m.BeginTransactionRecord("Bootstrap records"),
            *levels,
            m.ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, "1"),
            m.EndTransactionRecord(),
        ]

    def _registration(self, controller: Endpoint) -> m.RegisterControllerRecord:
        return m.RegisterControllerRecord(
            self._identity.node_id,
            self._env.uuid(),
            False,
            [m.ControllerEndpoint(*controller, 0)],
            [m.ControllerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        )

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Hand in a request or event and wait for its answer: everything it changed is committed by then.

        Raises:
            OSError: the metadata log could not be written; the node must stop.
        """
        async with self._lock:
            effects = self.machine.handle(self._env.now_ms(), Submission(None, request, version))
            if effects.records:
                try:
                    await self._commit(effects.records)
                except OSError as error:
                    # What is on disk now is not known: nothing may be decided on top of it.
                    self._fail(error)
                    raise
            return effects.replies[0].message

    async def _commit(self, records: list[Message]) -> None:
        level = self.image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        offset = self._quorum.append(records, self._env.now_ms(), level)
        await self._sync()
        for index, record in enumerate(records):
            self.machine.replay(offset + index, record)
        image, delta = self.machine.publish(offset + len(records) - 1, self.epoch)
        for listener in self.listeners:
            listener(image, delta)
        if self._quorum.bytes_since_snapshot > SNAPSHOT_AFTER_BYTES:
            self.write_snapshot()

    async def _sync(self) -> None:
        end = await self._env.in_thread(self._quorum.sync, Lane.RAFT)
        self._quorum.committed(end)

    def write_snapshot(self) -> None:
        """Write a snapshot of the image."""
        image = self.image
        level = image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        self._quorum.write_snapshot(records_of(image), image.offset + 1, self._env.now_ms(), level)
        logger.info("metadata snapshot at offset %d", image.offset + 1)

    async def register_broker(
        self, directory_ids: list[bytes], endpoints: list[m.BrokerEndpoint], rack: str | None
    ) -> int:
        """Register this node's broker with the directories it can use, and let it lead; gives its broker epoch."""
        event = Register(
            self._identity.node_id,
            self._env.uuid(),
            directory_ids,
            endpoints,
            rack,
            self.log_end_offset,
        )
        epoch: int = await self.submit(event)
        await self.submit(Unfence(self._identity.node_id))
        return epoch

    async def resign_broker(self) -> None:
        """Controlled shutdown of this node's broker."""
        await self.submit(ShutDown(self._identity.node_id))
        await self.submit(Resign(self._identity.node_id))

    def close(self) -> None:
        """Flush and close the metadata log, as a clean stop does."""
        self._quorum.log.close()
