"""One node, broker or controller or both: it wires the parts together, and lives.

Start: listen, lock the directories, format them if they are new, take part in the quorum; a broker then registers,
waits until the metadata says so, opens its partitions, is let in, and serves. A clean stop goes the other way and
leaves the mark that makes the next start quick. A disk that fails ends the node at once and leaves no mark; so does an
error behind the metadata log.

Source: ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ottla.broker import serving
from ottla.broker.config import NodeConfig
from ottla.broker.metadata.identity import NotFormatted, make_identity, remembered
from ottla.broker.metadata.lifecycle import RegistrationRefused
from ottla.broker.parts import Parts
from ottla.broker.replica.closing import close
from ottla.broker.replica.losses import Losses
from ottla.broker.replica.storage import Storage, WrongDirectory
from ottla.broker.server.listening import CannotListen, Listening
from ottla.broker.upkeep.supervise import raise_alone
from ottla.controller.delta import MetadataDelta
from ottla.controller.quorum_config import QuorumConfig
from ottla.log.directory import MetaProperties
from ottla.world import logs
from ottla.world.env import Env


class StartRefused(Exception):
    """The node cannot start as it was asked to; the message is one line for the user. Nothing was changed."""


class StorageFailed(Exception):
    """A data directory failed; the node has stopped."""


class Node:
    """A running node."""

    def __init__(self, env: Env, config: NodeConfig, on_grown: Callable[[], None] = lambda: None) -> None:
        logs.install()
        self.env = env
        self.config = config
        self.port = config.port
        self.storage = Storage(env.disk, config.data_dirs, config.metadata_dir)
        self._on_grown = on_grown
        self._ground = trio.CancelScope()
        self._losses = Losses(self.storage, self._ground.cancel)
        self._listening = Listening(env, config)
        self.parts: Parts | None = None
        """While it lives: what it consists of, for whoever looks at it from beside."""

    async def run(self, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None) -> None:
        """Serve until ``stop`` is set, then stop cleanly. Cancelled, it stops as a crash would.

        ``on_grown`` of the node is called after the start and whenever many partitions have come.

        Raises:
            StartRefused, OSError, DirectoryInUse, CorruptFile, NotOurQuorum: it could not start.
            StorageFailed: the disk failed while it ran.
        """
        losses, listening = self._losses, self._listening
        try:
            await listening.for_clients()
            await listening.for_metrics()
            self.port = next(iter(listening.ports.values()), self.port)
            self.storage.lock()
            with self._ground:
                await self._live(ready, trio.Event() if stop is None else stop)
        except (CannotListen, NotFormatted, WrongDirectory) as error:
            raise StartRefused(str(error)) from None
        except BaseException as error:
            if losses.failure is None:
                _raise(error)
        finally:
            listening.close()
            self.storage.unlock()
        if losses.failure is not None:
            raise StorageFailed(f"a data directory failed: {losses.failure}")

    async def _identify(self) -> tuple[MetaProperties, QuorumConfig]:
        """Whose the directories are, and who decides in their cluster; new ones are this node's from now on."""
        config, env, storage = self.config, self.env, self.storage
        identity = storage.identify(config.node_id, config.cluster_id)
        kept = () if identity is None else remembered(storage, config)
        await self._listening.for_controllers(kept)
        if not self._listening.clients:
            self.port = self._listening.controller_ports[0]
        quorum = config.quorum(*self._listening.controller_ports, kept=kept)
        if identity is None:
            identity = make_identity(storage, config, quorum, env.now_ms(), env.uuid)
        storage.begin(identity, env.now_ms(), env.uuid)
        return identity, quorum

    async def _live(self, ready: Callable[[Node], None] | None, stop: trio.Event) -> None:
        """From the first look at the directories to the mark of a clean stop."""
        identity, quorum = await self._identify()
        opened = True
        async with trio.open_nursery() as ground:
            made = Parts(self.env, self.config, self.storage, self._losses, identity, quorum, ground)
            self.parts = made
            made.making.on_grown = self._on_grown
            made.lifecycle.ports.update(self._listening.ports)
            serving.controllers(self.env, made, self._listening, ground)
            if self._listening.clients:
                opened = await self._unless(stop, made.enrol)
            if opened:
                if self._listening.clients:
                    await self._open(made, ground)
                await self._serve(made, ready, stop)
            ground.cancel_scope.cancel()
        self.parts = None
        await self._close(made, marked=opened)

    async def _open(self, made: Parts, ground: trio.Nursery) -> None:
        """Open what is there, and follow the metadata from here on."""
        image = made.controller.image
        made.applier.publish(image, MetadataDelta.from_empty(image))
        made.controller.listeners.append(made.applier.publish)  # what comes while the partitions are opened waits
        await made.open(image)
        ground.start_soon(made.applier.run)

    async def _serve(self, made: Parts, ready: Callable[[Node], None] | None, stop: trio.Event) -> None:
        """Serve until the stop, and hand over everything that others can take while they can still be served."""
        clients, leaving = self._listening.clients, True
        if not clients or await self._unless(stop, made.lifecycle.unfence):
            await trio.lowlevel.checkpoint()  # what has failed so far ends it here, before anybody is served
            async with trio.open_nursery() as nursery:
                if clients:
                    serving.clients(self.env, made, self._listening, nursery)
                if ready is not None:
                    ready(self)
                self._on_grown()
                await stop.wait()
                if not made.lifecycle.is_only_broker():
                    await made.lifecycle.resign()  # others catch up from here meanwhile
                    leaving = False
                nursery.cancel_scope.cancel()
        for listener in clients.values():
            listener.close()  # clients are refused at once, and ask another node
        if leaving:
            await made.lifecycle.resign()
        await made.controller.resign()

    async def _unless(self, stop: trio.Event, work: Callable[[], Awaitable[None]]) -> bool:
        """Do what may have to wait for other nodes, unless this one shall stop; says whether it was done."""
        if self.config.alone:
            await work()
            return True
        done = False
        async with trio.open_nursery() as nursery:

            async def cut() -> None:
                await stop.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cut)
            await work()
            done = True
            nursery.cancel_scope.cancel()
        return done

    async def _close(self, made: Parts, *, marked: bool) -> None:
        """Seal everything; the mark of a clean stop comes last, and only where all of it succeeded."""
        try:
            made.controller.close()
            if marked:
                await close(self.env, self.storage, made.lifecycle.broker_epoch)
        except OSError as error:
            self._losses.fail(error)


def _raise(error: BaseException) -> None:
    """Raise what ended the node, alone and in words for the user."""
    try:
        raise_alone(error)
    except RegistrationRefused as refused:
        raise StartRefused(str(refused)) from None
