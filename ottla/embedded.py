"""A node inside your own program: in a thread, or in a process of its own. For tests, notebooks, small tools.

    with ottla.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It takes a free port, keeps its data in a temporary directory, and leaves nothing behind. ``async with`` works under
trio; from asyncio use the thread form in an executor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType

import trio

from ottla.broker.config.node_config import NodeConfig, settings_from_environment
from ottla.broker.config.startup_checks import check_startup_values
from ottla.broker.node import Node
from ottla.env.hosts import format_address
from ottla.log.java_properties import dumps_settings
from ottla.runtime.module_cache import cache_modules
from ottla.runtime.real_env import RealEnv
from ottla.tools import security_setup

START_WITHIN_S = 30.0


class BrokerFailed(Exception):
    """The embedded node could not start, or stopped by itself."""


class Broker:
    """One embedded node.

    Args:
        data_dir: where to keep data; None takes a temporary directory that is removed afterwards.
        port: 0 takes a free one.
        host: the address to listen at.
        isolate: run in a child process instead of a thread.
        settings: Kafka's broker settings, such as ``{"num.partitions": "3"}``.
        tls: encrypt; certificates are made for it.
        sasl: ask for a login: ``SCRAM-SHA-512``, ``SCRAM-SHA-256`` or ``PLAIN``; a user is made for it.

    `client_config` says how clients reach a node that asks for any of it.

    Raises:
        ConfigException: a setting that cannot be.
    """

    def __init__(
        self,
        *,
        data_dir: str | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        isolate: bool = False,
        settings: Mapping[str, str] | None = None,
        tls: bool = False,
        sasl: str | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        check_startup_values(self.settings)
        self.host = host
        self.port = port
        self._wanted_port = port
        self._isolate = isolate
        self._data_dir = data_dir
        self._temporary: str | None = None
        self._asks = (tls, sasl or "")
        self._secured: security_setup.SecuritySetup | None = None
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._error: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT``, for any client."""
        return format_address(self.host, self.port)

    def client_config(self, kind: str = "confluent") -> dict[str, str]:
        """A client's settings in the words of ``confluent``, ``librdkafka``, ``java`` or ``kafka-python``.

        Raises:
            ValueError: an unknown kind.
        """
        made = self._secured or security_setup.SecuritySetup("PLAINTEXT", "", "", "")
        return security_setup.client_config(made, kind, self.bootstrap_servers)

    def start(self) -> Broker:
        """Start, and wait until clients may connect.

        Raises:
            BrokerFailed: it could not start.
        """
        if self._data_dir is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-")
        directory = self._data_dir or f"{self._temporary}/data"
        if any(self._asks):
            self._secure(directory)
        if self._isolate:
            self._start_child(directory)
            return self
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(directory,), name="ottla-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_WITHIN_S) or self._error is not None:
            error = self._error
            self.stop()
            raise BrokerFailed(f"the broker did not start: {error}") from error
        return self

    def _secure(self, directory: str) -> None:
        """See that there are certificates and a user."""
        tls, mechanism = self._asks
        try:
            self._secured = security_setup.ensure_security_setup(directory, (self.host,), tls=tls, mechanism=mechanism)
        except (security_setup.SecuritySetupFailed, OSError) as error:
            raise BrokerFailed(str(error)) from None

    def _config(self, directory: str) -> NodeConfig:
        if self._secured is None:
            return NodeConfig(self.settings, directory, host=self.host, port=self._wanted_port)
        own = security_setup.broker_settings(self._secured, directory, self.host, self._wanted_port)
        config = NodeConfig({**own, **self.settings}, directory, host=self.host, port=self._wanted_port)
        config.credentials = security_setup.scram_credential_records(self._secured)
        return config

    def _run(self, directory: str) -> None:
        config = self._config(directory)

        def ready(node: Node) -> None:
            self.port = node.port
            self._ready.set()
            trio.lowlevel.spawn_system_task(cache_modules)

        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            self._stop = trio.Event()
            await Node(RealEnv(), config).run(ready, self._stop)

        try:
            trio.run(main)
        except BaseException as error:  # noqa: BLE001,RUF100 - handed to the thread that waits
            self._error = error
        finally:
            self._ready.set()

    def _start_child(self, directory: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--data-dir", directory]
        command += ["--listen", format_address(self.host, self._wanted_port)]
        command += ["--secure"] if self._secured is not None else []
        settings_file = self._write_settings()
        try:
            command += ["--config", settings_file]
            kept = {
                k: v
                for k, v in os.environ.items()
                if not settings_from_environment({k: v}).keys() & self.settings.keys()
            }
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kept)  # noqa: S603 - ours
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
        finally:
            os.unlink(settings_file)
        if "Kafka Server started" not in line:
            self.stop()
            raise BrokerFailed("the broker's process did not start; its own words are on standard error")
        self.port = int(line.split("started: ")[1].split(",")[0].rpartition(":")[2])

    def _write_settings(self) -> str:
        """Write the settings into a private file and return its path: every user sees the arguments of a process."""
        number, path = tempfile.mkstemp(prefix="ottla-", suffix=".properties")
        with open(number, "w", encoding="utf-8") as file:
            file.write(dumps_settings(self.settings))
        return path

    def stop(self) -> None:
        """Stop cleanly and remove a temporary directory. Stopping twice is no error."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._token is not None and self._stop is not None and thread.is_alive():
                with contextlib.suppress(trio.RunFinishedError):  # it may have stopped by itself in the meantime
                    self._token.run_sync_soon(self._stop.set)
            thread.join(START_WITHIN_S)
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            child.wait(START_WITHIN_S)
            if child.stdout is not None:
                child.stdout.close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        return await trio.to_thread.run_sync(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.stop)
