"""Run of the node of ``ottla serve`` in this process, from parsed arguments to the exit status."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ottla.broker.config.listener_config import LOCAL_HOST, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.broker.node import AllLogDirsFailed, Node, StartupRejected
from ottla.cli.node_setup.log_output import configure_logging, logger, ready_address, start_summary
from ottla.cli.node_setup.settings import configure_with_saved_join, read_settings
from ottla.cli.terminal import OutputFailed
from ottla.console.node_runner import run_node
from ottla.controller.config.config_keys import CONSOLE_LISTENER
from ottla.controller.raft.store.metadata_store import IncompatibleQuorum
from ottla.controller.storage_formatter import StorageFormatError
from ottla.env.hosts import format_address
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectoryInUse
from ottla.runtime.garbage_collection import (
    collect_as_memory_grows,
    freeze_garbage_collector,
    release_free_memory,
)
from ottla.runtime.module_cache import cache_modules
from ottla.runtime.real_env import RealEnv
from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from ottla.runtime.service_notification import ServiceNotifier

STARTUP_ERRORS = (
    ConfigException,
    StorageFormatError,
    CorruptFile,
    LogDirectoryInUse,
    IncompatibleQuorum,
    OSError,
    StartupRejected,
    WireError,
)
"""Errors of the start that are printed as one line, with exit status 2."""


def unauthenticated_listener_warnings(config: NodeConfig) -> list[str]:
    """Return a warning about the PLAINTEXT listeners that other machines can reach, as a list of one text or none."""
    reached = [x for x in config.client_listeners if x.host not in LOCAL_HOST and not x.host.startswith("127.")]
    found = [
        f"{x.name} at {format_address(x.host or '*', x.port)}"
        for x in reached
        if config.security_protocol(x.name) == "PLAINTEXT"
    ]
    if not found:
        return []
    text = "is reachable from other machines without authentication (ottla serve --secure adds TLS and users)"
    return [f"{', '.join(found)} {text}"]


def build_node_config(options: argparse.Namespace) -> tuple[NodeConfig, list[str]]:
    """Return the node's configuration from the command line, and warnings to print.

    With ``--secure`` missing certificates and credentials are created. With ``--join`` the cluster is contacted, and
    the log directories of a new node are formatted for it.

    Raises:
        ConfigException: invalid settings, or the cluster cannot be joined.
        StorageFormatError, LogDirectoryInUse: only with ``--join``, as by `configure_joining`.
        CorruptFile: ``meta.properties``, or the stored settings of a join, are malformed.
        OSError: a file of the node cannot be read or written, or certificates cannot be created.
    """
    if options.join_credentials is not None and not (options.secure and options.join):
        raise ConfigException("--join-credentials FILE is for --secure --join HOST:PORT")
    values = read_settings(options)
    if options.console is not None:
        values[CONSOLE_LISTENER] = options.console
    if options.secure:
        # lazy: 5.2 ms, 166 kB: only with --secure
        from ottla.cli.node_setup.secure import configure_secure

        return configure_secure(options, values)
    warnings = check_startup_values(values)
    if options.join is not None:
        # lazy: 11.4 ms, 439 kB: only with --join
        from ottla.cli.node_setup.join import configure_joining

        config = configure_joining(options, values)
    else:
        config = configure_with_saved_join(values, options.data_dir, options.listen)
    config.cluster_id = options.cluster_id or config.cluster_id
    return config, [*warnings, *unauthenticated_listener_warnings(config)]


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit; a failure is ignored.

    Each partition that is written to uses a descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _service_notifier() -> ServiceNotifier | None:
    """Return the notifier of the service manager (systemd); None if ``NOTIFY_SOCKET`` is not set."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    # lazy: 0.5 ms, 8 kB: only under systemd
    from ottla.runtime.service_notification import ServiceNotifier

    return ServiceNotifier(os.environ)


async def _serve(config: NodeConfig, on_ready: Callable[[NodeConfig, int], None] | None = None) -> None:
    env = RealEnv()
    node = Node(env, config, freeze_garbage_collector)
    stop, service = trio.Event(), _service_notifier()

    def ready(running: Node) -> None:
        assert running.components is not None
        ports = {"": running.port, **running.components.lifecycle.ports}
        for text in start_summary(config, running.components.cache.cluster_id, ports):
            logger.info("%s", text)
        address = ready_address(config, ports)
        # Tools that start brokers wait for one of these two lines.
        logger.info("[KafkaServer id=%d] started", config.node_id)
        print(f"Kafka Server started: {address}, data in {config.data_dir}", flush=True)
        if service is not None:
            service.notify(f"READY=1\nSTATUS=Serving clients at {address}")
        if on_ready is not None:
            on_ready(config, running.port)
        trio.lowlevel.spawn_system_task(cache_modules)
        gc.collect()
        release_free_memory()

    async def watch() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                logger.info("Stopping node %d: %s", config.node_id, signal.Signals(number).name)
                if service is not None:
                    service.notify("STOPPING=1")
                stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        nursery.start_soon(collect_as_memory_grows, env)
        if service is not None:
            nursery.start_soon(service.run_watchdog)
        await run_node(node, config, ready, stop)
        nursery.cancel_scope.cancel()
    logger.info("Stopped node %d", config.node_id)


def _print_client_settings(config: NodeConfig, port: int) -> None:
    """Write the client properties files of ``--secure`` for the listener's bound ``port``, and print their paths."""
    # lazy: 5.1 ms, 166 kB
    from ottla.cli.node_setup.secure import write_client_settings

    write_client_settings(config, port)


def _root_cause(error: BaseException) -> BaseException:
    """Return the single error inside nested exception groups; a group of several errors is returned itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _error_message(error: BaseException) -> str:
    """Return the message of an error without errno; that of an OSError is followed by its file name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return str(error)


def serve_node(options: argparse.Namespace) -> int:
    """Run the node of ``ottla serve`` until SIGTERM or SIGINT.

    Args:
        options: parsed arguments of ``ottla serve``.

    Returns:
        Exit status: 0 after a stop; 1 if all log directories failed; 2 after one of `STARTUP_ERRORS`, also of the
        running node, with the reason printed as one line.

    Raises:
        OutputFailed: standard output cannot be written.
        Exception: the node failed with another error.
    """
    try:
        configure_logging(options)
        config, warnings = build_node_config(options)
        for text in warnings:
            print(f"ottla serve: warning: {text}", file=sys.stderr)
        _raise_descriptor_limit()
        trio.run(_serve, config, _print_client_settings if options.secure else None)
    except (*STARTUP_ERRORS, ExceptionGroup) as raised:
        error = _root_cause(raised)
        if isinstance(error, AllLogDirsFailed):
            print(f"ottla serve: {error}", file=sys.stderr)
            return 1
        if isinstance(error, OutputFailed):
            raise error from None
        if isinstance(error, STARTUP_ERRORS):
            print(f"ottla serve: {_error_message(error)}", file=sys.stderr)
            return 2
        raise
    return 0
