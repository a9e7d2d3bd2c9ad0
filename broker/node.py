"""Node with the role of broker, controller or both: creates its components and runs its life cycle.

Startup: bind, lock the log directories, format a new metadata directory, join the quorum; a broker then waits for the
metadata, registers, opens its partitions, is unfenced, and serves. A clean shutdown reverses this and writes the
clean shutdown file for a quick start. A failure of a log directory that the node needs (`LogDirs.can_go_offline`) stops
it at once without that file; so does an error of the metadata log.

Source: ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.broker.components import endpoints
from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.metadata.broker_lifecycle import RegistrationRejected
from ottla.broker.network.bound_listeners import BindError, BoundListeners
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import LogDirMismatch, LogDirs, close_log_dirs
from ottla.broker.storage.node_identity import LogDirsNotFormatted, format_log_dirs, read_previous_voters
from ottla.controller.config.config_keys import CONSOLE_LISTENER, FAULTS, OTLP_ENDPOINT
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.env import log_escaping
from ottla.env.env import Env
from ottla.jobs.supervision import raise_unwrapped
from ottla.log.directory.meta_properties import MetaProperties

if TYPE_CHECKING:
    from ottla.broker.faults.fault_endpoint import FaultEndpoint
    from ottla.broker.faults.node_faults import NodeFaults


class StartupRejected(Exception):
    """Raised if a node cannot start with its settings, or its registration is not accepted in time.

    The message is one line for the user. A rejected registration may come after new log directories were formatted.
    """


class AllLogDirsFailed(Exception):
    """Raised after the node has stopped because a required log directory failed."""


class Node:
    """Node of a cluster, in this process, with the role of broker, controller or both; `run` starts and serves it."""

    def __init__(self, env: Env, config: NodeConfig, on_grown: Callable[[], None] = lambda: None) -> None:
        log_escaping.install()
        self._faults = None if config.values.get(FAULTS, "false") == "false" else _create_faults(env)
        self._fault_endpoint: FaultEndpoint | None = None
        self.env = env = env if self._faults is None else self._faults.env
        self.config = config
        self.port = config.port
        self.log_dirs = LogDirs(env.disk, config.data_dirs, config.metadata_dir)
        self._on_partitions_added = on_grown
        self._cancel_scope = trio.CancelScope()
        self._log_dir_failures = LogDirFailureHandler(self.log_dirs, self._cancel_scope.cancel)
        self._listeners = BoundListeners(env, config)
        self.components: BrokerComponents | None = None
        """Components of the running node, None before and after; for the console and tests."""

    async def run(self, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None) -> None:
        """Start the node and serve until ``stop`` is set, then shut down cleanly.

        A cancellation stops it as a crash would. ``ready`` is called when the node serves. The callback ``on_grown`` of
        the constructor is called then, too, and each time that many logs were created.

        Raises:
            StartupRejected, OSError, LogDirectoryInUse, CorruptFile, IncompatibleQuorum: it could not start.
            AllLogDirsFailed: a required log directory failed at run time.
        """
        dir_failures, listening = self._log_dir_failures, self._listeners
        try:
            await listening.bind_clients()
            await listening.bind_metrics()
            if self._faults is not None:
                self._fault_endpoint = _create_fault_endpoint(self._faults, self.config, listening.ports)
            self.port = next(iter(listening.ports.values()), self.port)
            self.log_dirs.lock()
            with self._cancel_scope:
                await self._run_components(ready, trio.Event() if stop is None else stop)
        except (BindError, LogDirsNotFormatted, LogDirMismatch) as error:
            raise StartupRejected(str(error)) from None
        except BaseException as error:
            if dir_failures.failure is None:
                _raise_startup_error(error)
        finally:
            listening.close()
            self.log_dirs.unlock()
        if dir_failures.failure is not None:
            raise AllLogDirsFailed(f"Shutdown broker because a log directory has failed: {dir_failures.failure}")

    async def _load_identity(self) -> tuple[MetaProperties, QuorumConfig]:
        """Return the identity of the log directories and the quorum configuration; bind the controller listeners.

        A new metadata directory is formatted, other new directories get its identity; all checkpoints are loaded.
        """
        config, env, storage = self.config, self.env, self.log_dirs
        identity = storage.identify(config.node_id, config.cluster_id)
        kept = () if identity is None else read_previous_voters(storage, config)
        await self._listeners.bind_controllers(kept)
        if not self._listeners.clients:
            self.port = self._listeners.controller_ports[0]
        quorum = config.quorum_config(*self._listeners.controller_ports, kept=kept)
        if identity is None:
            identity = format_log_dirs(storage, config, quorum, env.now_ms(), env.uuid)
        storage.initialize(identity, env.now_ms(), env.uuid)
        return identity, quorum

    async def _run_components(self, ready: Callable[[Node], None] | None, stop: trio.Event) -> None:
        """Run the components of the node, from loading its identity to writing the clean shutdown files.

        ``ready`` is called once the node serves; ``stop`` ends the run.
        """
        identity, quorum = await self._load_identity()
        opened = True
        async with trio.open_nursery() as nursery:
            made = BrokerComponents(
                self.env, self.config, self.log_dirs, self._log_dir_failures, identity, quorum, nursery
            )
            self.components = made
            made.log_creator.on_log_count_grown = self._on_partitions_added
            made.lifecycle.ports.update(self._listeners.ports)
            is_observed = any(map(self.config.values.get, (OTLP_ENDPOINT, CONSOLE_LISTENER)))
            if self._listeners.metrics is not None or is_observed:
                # lazy: 17.7 ms, 564 kB: only with an HTTP listener or export
                from ottla.broker.components.http_endpoints import start_observability

                start_observability(self.env, made, self._listeners, nursery)
            endpoints.start_controller_endpoints(self.env, made, self._listeners, nursery)
            if self._fault_endpoint is not None:
                await nursery.start(self._fault_endpoint.run)
            if self._listeners.clients:
                opened = await self._run_unless_stopped(stop, made.register_broker)
            if opened:
                if self._listeners.clients:
                    await self._open_partitions(made, nursery)
                await self._serve(made, ready, stop)
            nursery.cancel_scope.cancel()
        self.components = None
        await self._close_logs(made, marked=opened)

    async def _open_partitions(self, made: BrokerComponents, nursery: trio.Nursery) -> None:
        """Open the partitions' logs by the current image, then start the task that applies later metadata.

        Directories of partitions that the image does not assign to this node are renamed or deleted. A log directory
        that fails goes offline.

        Raises:
            CorruptFile, OSError: as `BrokerComponents.open_partitions`.
        """
        image = made.controller.image
        made.controller.subscribe(made.publisher.publish)  # publications during the opening are queued
        await made.open_partitions(image)
        nursery.start_soon(made.publisher.run)

    async def _serve(self, made: BrokerComponents, ready: Callable[[Node], None] | None, stop: trio.Event) -> None:
        """Unfence the broker and serve until stopped, then run the controlled shutdown and resign as controller.

        The controlled shutdown runs while other brokers can still fetch, unless this broker is the only one.
        """
        clients, leaving = self._listeners.clients, True
        if not clients or await self._run_unless_stopped(stop, made.lifecycle.unfence):
            await trio.lowlevel.checkpoint()  # raises earlier failures before requests are served
            async with trio.open_nursery() as nursery:
                if clients:
                    create = Dispatcher if self._faults is None else self._faults.create_dispatcher
                    endpoints.start_client_endpoints(self.env, made, self._listeners, nursery, create)
                if ready is not None:
                    ready(self)
                self._on_partitions_added()
                await stop.wait()
                if not made.lifecycle.is_only_broker():
                    await made.lifecycle.controlled_shutdown()  # followers fetch from this broker meanwhile
                    leaving = False
                nursery.cancel_scope.cancel()
        for listener in clients.values():
            listener.close()  # new connections are refused, so that clients try another node
        if leaving:
            await made.lifecycle.controlled_shutdown()
        await made.controller.resign()

    async def _run_unless_stopped(self, stop: trio.Event, work: Callable[[], Awaitable[None]]) -> bool:
        """Run ``work``, which may wait for other nodes, and return True; False if ``stop`` was set and cancelled it.

        A standalone node runs ``work`` to its end.
        """
        if self.config.is_standalone:
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

    async def _close_logs(self, made: BrokerComponents, *, marked: bool) -> None:
        """Close the controller's metadata log; with ``marked`` also all other logs, and write the clean shutdown files.

        A disk error is handled as a failure of the metadata directory.
        """
        try:
            made.controller.close()
            if marked:
                await close_log_dirs(self.env, self.log_dirs, made.lifecycle.broker_epoch)
        except OSError as error:
            self._log_dir_failures.handle_failure(error)


def _create_faults(env: Env) -> NodeFaults:
    """Return the state of fault injection, with an environment that injects the faults."""
    # lazy: 4.2 ms, 202 kB: only with faults
    from ottla.broker.faults.node_faults import NodeFaults

    return NodeFaults(env)


def _create_fault_endpoint(faults: NodeFaults, config: NodeConfig, ports: Mapping[str, int]) -> FaultEndpoint:
    """Return the listener through which faults are injected. Raises ConfigException."""
    # lazy: 20 ms, 600 kB: only with faults
    from ottla.broker.faults.fault_endpoint import FaultEndpoint

    return FaultEndpoint(faults, config, ports)


def _raise_startup_error(error: BaseException) -> None:
    """Raise the error that stopped the node, at startup or later, without exception groups.

    StartupRejected is raised instead of an invalid setting or a rejected registration.
    """
    try:
        raise_unwrapped(error)
    except (RegistrationRejected, ConfigException) as refused:
        raise StartupRejected(str(refused)) from None
