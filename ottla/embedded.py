"""Embedded node: runs in a thread of your program, or in a child process. For tests, notebooks, small tools.

    with ottla.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    async with ottla.Broker() as broker:  # asyncio or trio
        await broker.produce("events", b"hello")

By default the node listens on a free port and stores its data in a temporary directory that is removed at its stop.
"""

from __future__ import annotations

import asyncio
import atexit
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
from ottla.broker.node import Node
from ottla.client.security_config import parse_connection_security
from ottla.console.node_runner import run_node
from ottla.env.hosts import format_address
from ottla.log.java_properties import dumps_settings
from ottla.runtime.module_cache import cache_modules
from ottla.runtime.real_env import RealEnv
from ottla.tools import security_setup
from ottla.tools.async_calls import run_in_thread, run_to_end_in_thread
from ottla.tools.blocking_client import WAIT_TIMEOUT_S, BlockingClient
from ottla.tools.fault_controls import AsyncFaultControls, FaultControls
from ottla.tools.setting_values import SettingValue, broker_settings_text
from ottla.tools.topic_record import TopicRecord

START_WITHIN_S = 30.0


class BrokerFailed(Exception):
    """Raised if the embedded node cannot start, runs already at a start, or does not run at a restart."""


class Broker(FaultControls):
    """Embedded node, broker and controller in one; `start`, ``with`` or ``async with`` starts it.

    Args:
        data_dir: path of the data directory; None: a temporary directory that is removed afterwards.
        port: port of the listener; 0: a free one, which the attribute ``port`` has after the start.
        host: address to listen at.
        isolate: run in a child process instead of a thread.
        settings: broker settings, such as ``{"num.partitions": 3}``.
        tls: use TLS; certificates are generated.
        sasl: require ``SCRAM-SHA-512``, ``SCRAM-SHA-256`` or ``PLAIN``; a user is created.

    `client_config` returns the settings clients need for ``tls`` and ``sasl``. `produce`, `records`, `expect` and
    `wait_for` block; ``async with`` yields an `AsyncBroker`, with coroutines of the same names.
    With ``tls`` or ``sasl``, a security setup that ``data_dir`` has from an earlier start is used as it is.

    Raises:
        ConfigException: an unknown setting, or a value that is invalid.
        ValueError: an empty path.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        isolate: bool = False,
        settings: Mapping[str, SettingValue] | None = None,
        tls: bool = False,
        sasl: str | None = None,
    ) -> None:
        self.settings = broker_settings_text(settings or {})
        self.host = host
        self.port = port
        self._wanted_port = port
        self._isolate = isolate
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        if self._data_dir == "":
            raise ValueError("data_dir: empty path")
        self._owner_pid = 0
        self._temporary: str | None = None
        self._security = (tls, sasl or "")
        self._secured: security_setup.SecuritySetup | None = None
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._error: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of the client listener."""
        return format_address(self.host, self.port)

    def client_config(self, kind: str = "confluent") -> dict[str, str]:
        """Return client settings (port and security only after the start) with the names of a kind of client library.

        Raises:
            ValueError: ``kind`` is none of ``confluent``, ``librdkafka``, ``java`` and ``kafka-python``.
        """
        made = self._secured or security_setup.SecuritySetup("PLAINTEXT", "", "", "")
        return security_setup.client_config(made, kind, self.bootstrap_servers)

    @property
    def client(self) -> BlockingClient:
        """New blocking client of this node, which also creates and deletes topics."""
        return BlockingClient(self.bootstrap_servers, parse_connection_security(self.client_config("java")))

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append a record for each value and wait for the acknowledgements, as `BlockingClient.produce`."""
        self.client.produce(topic, *values, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)

    def records(self, topic: str, *, committed: bool = False) -> list[TopicRecord]:
        """Return all records of a topic by partition and offset, as `BlockingClient.records`."""
        return self.client.records(topic, committed=committed)

    def expect(
        self, topic: str, count: int, *, timeout_s: float = WAIT_TIMEOUT_S, committed: bool = False
    ) -> list[TopicRecord]:
        """Wait until a topic has at least ``count`` records; return all of them, as `BlockingClient.expect`."""
        return self.client.expect(topic, count, timeout_s=timeout_s, committed=committed)

    def wait_for(
        self, group: str, *, lag: int = 0, topic: str | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until the lag of a group is at most ``lag`` records, as `BlockingClient.wait_for`."""
        self.client.wait_for(group, lag=lag, topic=topic, timeout_s=timeout_s)

    @property
    def is_running(self) -> bool:
        """True from start to stop, unless the node has stopped by itself; False in a forked child process."""
        if self._owner_pid != os.getpid():
            return False
        if self._child is not None:
            return self._child.poll() is None
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Broker:
        """Start the node, wait until it accepts connections of clients, and return this object.

        Raises:
            BrokerFailed: the node runs already, or cannot start; OSError: no temporary directory or child process.
        """
        if self.is_running:
            raise BrokerFailed("the broker runs already")
        self._shut_down()
        self._owner_pid = os.getpid()
        if self._data_dir is None and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-")
        atexit.register(self.stop)
        try:
            return self._start(self._fault_dir())
        except BaseException:
            self.stop()
            raise

    def _fault_dir(self) -> str:
        return self._data_dir or f"{self._temporary}/data"

    def _start(self, directory: str) -> Broker:
        if any(self._security):
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
            reason = error or f"not ready after {START_WITHIN_S:g} s"
            raise BrokerFailed(f"the broker did not start: {reason}") from error
        return self

    def _secure(self, directory: str) -> None:
        """Create certificates and a user, or read the stored ones with their mechanism; else raise BrokerFailed."""
        tls, mechanism = self._security
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
            await run_node(Node(RealEnv(), config), config, ready, self._stop)

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
            timer = threading.Timer(START_WITHIN_S, self._child.kill)
            timer.daemon = True
            timer.start()
            line = self._child.stdout.readline()
            timer.cancel()
        finally:
            os.unlink(settings_file)
        if "Kafka Server started" not in line:
            raise BrokerFailed("the process of the broker did not start: see its standard error")
        self.port = int(line.split("started: ")[1].split(",")[0].rpartition(":")[2])

    def _write_settings(self) -> str:
        """Write the settings to a new file of mode 0600 and return its path, since all users can see arguments."""
        number, path = tempfile.mkstemp(prefix="ottla-", suffix=".properties")
        with open(number, "w", encoding="utf-8") as file:
            file.write(dumps_settings(self.settings))
        return path

    def restart(self) -> None:
        """Stop the node and start it again on the same port with the same data.

        Raises:
            BrokerFailed: the node does not run, or cannot start again; a temporary directory is removed then.
        """
        if not self.is_running:
            raise BrokerFailed("the broker does not run")
        self._shut_down()
        self._wanted_port = self.port
        self.start()

    def stop(self) -> None:
        """Stop the node and remove a temporary directory; a stopped node is left alone.

        No effect in a child (``os.fork``) of the process that started the node.
        """
        atexit.unregister(self.stop)
        self._shut_down()
        temporary, self._temporary = self._temporary, None
        if temporary is not None and self._owner_pid == os.getpid():
            shutil.rmtree(temporary, ignore_errors=True)

    def _shut_down(self) -> None:
        """Stop the node and wait for its end, for a thread up to `START_WITHIN_S`, after which a child is killed."""
        if self._owner_pid != os.getpid():  # in a forked child: owned by the parent process
            self._thread = self._child = self._temporary = None
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._token is not None and self._stop is not None and thread.is_alive():
                with contextlib.suppress(trio.RunFinishedError):  # it may have stopped by itself in the meantime
                    self._token.run_sync_soon(self._stop.set)
            thread.join(START_WITHIN_S)
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            try:
                child.wait(START_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncBroker:
        try:
            await run_to_end_in_thread(self.start)
        except asyncio.CancelledError:
            await run_to_end_in_thread(self.stop)
            raise
        return AsyncBroker(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_to_end_in_thread(self.stop)


class AsyncBroker(AsyncFaultControls):
    """Embedded node for asyncio and trio, with coroutines in place of methods that block, without `start` and `stop`.

    Args:
        broker: the node, from ``async with ottla.Broker()`` or the pytest fixture ``kafka_broker``.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.broker = broker

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of the client listener."""
        return self.broker.bootstrap_servers

    @property
    def host(self) -> str:
        """Host of the client listener."""
        return self.broker.host

    @property
    def port(self) -> int:
        """Port of the client listener."""
        return self.broker.port

    def client_config(self, kind: str = "confluent") -> dict[str, str]:
        """Return the settings with which a client library connects to this broker, as `Broker.client_config`."""
        return self.broker.client_config(kind)

    async def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append a record for each value and wait for the acknowledgements, as `BlockingClient.produce`."""
        await run_in_thread(
            lambda: self.broker.produce(
                topic, *values, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    async def records(self, topic: str, *, committed: bool = False) -> list[TopicRecord]:
        """Return all records of a topic by partition and offset, as `BlockingClient.records`."""
        return await run_in_thread(lambda: self.broker.records(topic, committed=committed))

    async def expect(
        self, topic: str, count: int, *, timeout_s: float = WAIT_TIMEOUT_S, committed: bool = False
    ) -> list[TopicRecord]:
        """Wait until a topic has at least ``count`` records; return all of them, as `BlockingClient.expect`."""
        return await run_in_thread(lambda: self.broker.expect(topic, count, timeout_s=timeout_s, committed=committed))

    async def wait_for(
        self, group: str, *, lag: int = 0, topic: str | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until the lag of a group is at most ``lag`` records, as `BlockingClient.wait_for`."""
        await run_in_thread(lambda: self.broker.wait_for(group, lag=lag, topic=topic, timeout_s=timeout_s))

    async def create_topic(
        self, name: str, partitions: int = -1, *, settings: Mapping[str, SettingValue] | None = None
    ) -> None:
        """Create a topic, as `BlockingClient.create_topic`."""
        await run_in_thread(lambda: self.broker.client.create_topic(name, partitions, settings=settings))

    async def restart(self) -> None:
        """Stop the node and start it again on the same port with the same data, as `Broker.restart`."""
        await run_to_end_in_thread(self.broker.restart)
