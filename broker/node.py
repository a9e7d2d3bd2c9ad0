"""One node, broker and controller in one: it wires the parts together, and lives.

Start: listen, lock the directory, format it if it is new, read the metadata, lead it, open the partitions, register,
serve. A clean stop goes the other way and leaves the mark that makes the next start quick. A disk that fails ends
the node at once and leaves no mark; so does an error behind the metadata log.

Source: ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.parts import CONTROLLER, Parts
from ottla.broker.replica.closing import close
from ottla.broker.replica.losses import Losses
from ottla.broker.replica.making import WORKERS
from ottla.broker.replica.storage import Storage, WrongDirectory
from ottla.broker.server import metrics
from ottla.broker.server.acceptor import Acceptor
from ottla.broker.server.dispatch import Dispatcher
from ottla.broker.server.listening import CannotListen, listen
from ottla.broker.server.observer import Counts
from ottla.broker.upkeep.supervise import raise_alone, supervise
from ottla.controller.delta import Delta
from ottla.controller.format import format_directory
from ottla.log.directory import Identity
from ottla.world.env import FOREVER_S, Env, Listener


class StartRefused(Exception):
    """The node cannot start as it was asked to; the message is one line for the user. Nothing was changed."""


class StorageFailed(Exception):
    """A data directory failed; the node has stopped."""


class Node:
    """A running node."""

    def __init__(self, env: Env, config: NodeConfig, on_grown: Callable[[], None] = lambda: None) -> None:
        self.env = env
        self.config = config
        self.port = config.port
        self.storage = Storage(env.disk, config.data_dirs, config.metadata_dir)
        self._on_grown = on_grown
        self._ground = trio.CancelScope()
        self._losses = Losses(self.storage, self._ground.cancel)
        self._listeners: list[Listener] = []
        self.parts: Parts | None = None
        """While it lives: what it consists of, for whoever looks at it from beside."""

    async def run(self, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None) -> None:
        """Serve until ``stop`` is set, then stop cleanly. Cancelled, it stops as a crash would.

        ``on_grown`` of the node is called after the start and whenever many partitions have come.

        Raises:
            StartRefused, OSError, DirectoryInUse, CorruptFile, NotOurQuorum: it could not start.
            StorageFailed: the disk failed while it ran.
        """
        losses = self._losses
        try:
            await listen(self.env, self.config, self._listeners)
            self.port = self._listeners[0].port
            self.storage.lock()
            with self._ground:
                await self._live(ready, stop)
        except CannotListen as error:
            raise StartRefused(str(error)) from None
        except BaseException as error:
            if losses.failure is None:
                raise_alone(error)
        finally:
            self._hang_up()
            self.storage.unlock()
        if losses.failure is not None:
            raise StorageFailed(f"a data directory failed: {losses.failure}")

    def _hang_up(self) -> None:
        """Nobody may come any more: clients are refused at once, and ask another node."""
        for listener in self._listeners:
            listener.close()

    def _identify(self) -> Identity:
        """Whose the directories are; new ones are this node's from now on."""
        config, env, storage = self.config, self.env, self.storage
        try:
            identity = storage.identify(config.node_id, config.cluster_id)
        except WrongDirectory as error:
            raise StartRefused(str(error)) from None
        if identity is None:
            identity = format_directory(
                storage.metadata, config.node_id, config.cluster_id, CONTROLLER, env.now_ms(), env.uuid
            )
        storage.begin(identity, env.now_ms(), env.uuid)
        return identity

    async def _live(self, ready: Callable[[Node], None] | None, stop: trio.Event | None) -> None:
        """From the first look at the directories to the mark of a clean stop."""
        async with trio.open_nursery() as ground:
            made = Parts(self.env, self.config, self.storage, self._losses, self._identify(), ground)
            self.parts = made
            made.lifecycle.ports[self.config.client_listeners[0].name] = self.port
            made.making.on_grown = self._on_grown
            ground.start_soon(made.controller.run)
            await made.controller.ready()
            image = made.controller.image
            made.applier.publish(image, Delta.everything(image))
            made.controller.listeners.append(made.applier.publish)  # what comes while the partitions are opened waits
            await made.replicas.load(image)
            ground.start_soon(made.applier.run)
            await made.lifecycle.register()
            await trio.lowlevel.checkpoint()  # what has failed so far ends it here, before anybody is served
            async with trio.open_nursery() as serving:
                self._serve(made, serving)
                if ready is not None:
                    ready(self)
                self._on_grown()
                await (self.env.sleep(FOREVER_S) if stop is None else stop.wait())
                serving.cancel_scope.cancel()
            self._hang_up()
            await made.lifecycle.resign()
            ground.cancel_scope.cancel()
        await self._close(made)

    def _serve(self, made: Parts, nursery: trio.Nursery) -> None:
        """Start what goes on while requests are served. What may fail and begin anew is supervised."""
        nursery.start_soon(made.timers.run)
        nursery.start_soon(made.groups.run)
        for _ in range(WORKERS):
            nursery.start_soon(made.making.run)
        for name, work in made.upkeep():
            nursery.start_soon(supervise, self.env, name, work, name=name)
        counts = Counts()
        watched = len(self._listeners) > 1  # counting costs half a microsecond a request: only where somebody looks
        acceptor = Acceptor(Dispatcher(made.services, observer=counts if watched else None))
        for listener in self._listeners[1:]:
            numbers = metrics.Numbers(
                self.storage, made.replicas, made.cleaner, made.scrubber, counts, acceptor.__len__
            )
            nursery.start_soon(supervise, self.env, "metrics", partial(metrics.serve, self.env, numbers, listener))
        nursery.start_soon(acceptor.run, self._listeners[0])

    async def _close(self, made: Parts) -> None:
        """Seal everything; the mark of a clean stop comes last, and only where all of it succeeded."""
        try:
            made.controller.close()
            await close(self.env, self.storage, made.lifecycle.broker_epoch)
        except OSError as error:
            self._losses.fail(error)
