"""Several nodes on this machine, each a process of its own: for tests, and behind ``ottla cluster start``.

    with ottla.Cluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)

The first three nodes (one, where there are fewer than three) decide; each is broker and controller.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType

from ottla.client.security_config import parse_connection_security
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.storage_formatter import FormatPlan, InitialVoter, format_directories, read_snapshot_voters
from ottla.env.disk import PRIVATE_DIR
from ottla.env.hosts import format_address
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.java_properties import dumps_settings
from ottla.runtime.real_disk import open_private
from ottla.runtime.system_env import SystemEnv
from ottla.tools import security_setup
from ottla.tools.blocking_client import BlockingClient
from ottla.tools.fault_controls import ClusterFaultControls, FaultControls
from ottla.tools.setting_values import SettingValue, broker_settings_text
from ottla.wire.codec.primitives import uuid_to_string

START_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0
QUORUM_SIZE = 3
MAX_PORT = 65_535
CONTROLLER = "CONTROLLER"
CLIENT_PORTS, CONTROLLER_PORTS = range(15_000, 23_000), range(23_000, 31_000)
"""Ranges of free ports: below the system's ephemeral ports, since a node binds its port only later. Separate, since a
controller keeps the port in its directory, and a restarted cluster draws its client ports again.
"""


class ClusterFailed(Exception):
    """A node failed to start; the message names the node and has its last log lines."""


def free_ports(host: str, count: int, among: range) -> list[int]:
    """Return different ports without a listener.

    Raises:
        OSError: the address does not belong to this machine.
    """
    found: list[int] = []
    first = int(SystemEnv().random() * len(among))
    for port in (*among[first:], *among[:first]):
        if len(found) == count:
            break
        with socket.socket() as sock:
            try:
                sock.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
    return found


def _remove_directory(path: str, owner_pid: int) -> None:
    """Remove a temporary directory, unless this is a child of the process that made it."""
    if os.getpid() == owner_pid:
        shutil.rmtree(path, ignore_errors=True)


class ClusterNode(FaultControls):
    """Node of a cluster, and its process while it runs."""

    def __init__(self, node_id: int, data_dir: str, host: str, port: int) -> None:
        self.id = node_id
        self.data_dir = data_dir
        self.log = f"{data_dir}.log"
        """Where the process writes its standard error."""
        self.config = f"{data_dir}.properties"
        """Its settings: ``ottla serve --config`` starts it by hand."""
        self.host = host
        self.port = port
        self.controller_port = 0
        self._process: subprocess.Popen[str] | None = None
        self._start_finished = threading.Event()
        self._ready = False

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT`` of this node."""
        return format_address(self.host, self.port)

    def _fault_dir(self) -> str:
        return self.data_dir

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status of a process that has ended; negative: the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def start(self, settings: Mapping[str, str]) -> None:
        """Write the settings and start the process; `wait` waits until it serves."""
        with open(open_private(self.config), "w", encoding="utf-8") as file:
            file.write(dumps_settings(settings))
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--config", self.config]
        self._start_finished, self._ready = threading.Event(), False
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603
        threading.Thread(target=self._listen, args=(self._process, self._start_finished), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], finished: threading.Event) -> None:
        """Read the output of the process to its end."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if "Kafka Server started" in line:
                    self._ready = True
                    finished.set()
        process.wait()
        finished.set()

    def wait(self) -> None:
        """Wait until clients may connect.

        Raises:
            ClusterFailed: it ended before, or took too long.
        """
        if not self._start_finished.wait(START_WITHIN_S) or not self._ready:
            why = f"ended with status {self.status}" if self.status is not None else "is not ready yet"
            raise ClusterFailed(f"node {self.id} {why}: {self._last_words()}")

    def _last_words(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().rstrip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def signal(self, number: int) -> None:
        """Send the process a signal, where it still runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wait_end(self) -> None:
        """Wait until the process ends; kill it after a timeout."""
        if self._process is not None:
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Cluster(ClusterFaultControls):
    """A cluster of processes.

    Args:
        nodes: how many.
        data_dir: where to keep data, a directory a node; None takes a temporary one that is removed afterwards.
        port: the first node's port for clients, the next have the following ones; 0 takes free ones.
        host: the address to listen at.
        settings: Kafka's broker settings for every node.
        tls: encrypt, between nodes too; an authority and a certificate are generated.
        sasl: require a login with ``SCRAM-SHA-512``, ``SCRAM-SHA-256`` or ``PLAIN``, of nodes too; a user is created.

    Raises:
        ConfigException: an unknown setting, or a value that is invalid.
        ValueError: no node, an empty path, or ports above 65535.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        settings: Mapping[str, SettingValue] | None = None,
        tls: bool = False,
        sasl: str | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes: {nodes} (1 or more expected)")
        if not 0 <= port <= MAX_PORT - nodes + 1:
            raise ValueError(f"port: {port} (0 to {MAX_PORT - nodes + 1} for {nodes} nodes expected)")
        if data_dir is not None and not os.fspath(data_dir):
            raise ValueError("data_dir: empty path")
        self.settings = broker_settings_text(settings or {})
        self._tls, self._mechanism = tls, sasl or ""
        self._secured: security_setup.SecuritySetup | None = None
        ports = [port + i for i in range(nodes)] if port else free_ports(host, nodes, CLIENT_PORTS)
        self._owner_pid = os.getpid()
        self._temporary = None
        if data_dir is None:
            self._temporary = tempfile.mkdtemp(prefix="ottla-")
            weakref.finalize(self, _remove_directory, self._temporary, self._owner_pid)
        self._data_dir = (f"{self._temporary}/data" if data_dir is None else os.fspath(data_dir)).rstrip("/")
        self.nodes = [ClusterNode(i, f"{self._data_dir}/node-{i}", host, p) for i, p in enumerate(ports, 1)]
        self._host = host

    @property
    def bootstrap_servers(self) -> str:
        """Every node's address with commas between, for any client."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def client_config(self, kind: str = "confluent") -> dict[str, str]:
        """Return a client's settings in the words of ``confluent``, ``librdkafka``, ``java`` or ``kafka-python``.

        Raises:
            ValueError: an unknown kind.
        """
        made = self._secured or security_setup.SecuritySetup("PLAINTEXT", "", "", "")
        return security_setup.client_config(made, kind, self.bootstrap_servers)

    def write_client_files(self) -> list[str]:
        """Write client settings in every form beside the data; return a line about each file. None without security."""
        if self._secured is None:
            return []
        return security_setup.write_client_files(self._secured, self._data_dir, self.bootstrap_servers)

    @property
    def client(self) -> BlockingClient:
        """Client of this cluster: ``produce``, ``records``, ``expect``, ``wait_for``, ``create_topic``."""
        return BlockingClient(self.bootstrap_servers, parse_connection_security(self.client_config("java")))

    def _fault_nodes(self) -> list[ClusterNode]:
        return self.nodes

    def node(self, node_id: int) -> ClusterNode:
        """Return a node by its id; the first is 1.

        Raises:
            ValueError: there is no such node.
        """
        if not 1 <= node_id <= len(self.nodes):
            raise ValueError(f"node {node_id} (1 to {len(self.nodes)} expected)")
        return self.nodes[node_id - 1]

    # ------------------------------------------------------------------ start and stop

    def start(self) -> Cluster:
        """Format what is new, start every node, and wait until all serve.

        Raises:
            ClusterFailed: one could not start, and the others are stopped again; or the cluster runs already.
            StorageFormatError, CorruptFile, OSError: a directory is another's, or cannot be used.
        """
        if any(node.pid is not None for node in self.nodes):
            raise ClusterFailed("the cluster runs already")
        atexit.register(self.stop)
        try:
            self._secure()
            self._format()
            for node in self.nodes:
                node.start(self._settings_of(node))
            for node in self.nodes:
                node.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _secure(self) -> None:
        """Create certificates and a user for all nodes, or read those of an earlier start.

        Raises:
            ClusterFailed: the nodes were formatted without them, or they cannot be created.
        """
        if not self._tls and not self._mechanism:
            return
        has_setup = os.path.exists(f"{self._data_dir}/{security_setup.STATE_FILE}")
        if not has_setup and any(os.path.exists(f"{node.data_dir}/meta.properties") for node in self.nodes):
            raise ClusterFailed(f"{self._data_dir} was created without security: choose another directory")
        try:
            self._secured = security_setup.ensure_security_setup(
                self._data_dir, (self._host,), tls=self._tls, mechanism=self._mechanism
            )
        except security_setup.SecuritySetupFailed as error:
            raise ClusterFailed(str(error)) from None

    def _format(self) -> None:
        """Give each node's controller the port it had before, or a free one, and make directories that are new."""
        machine = SystemEnv()
        os.makedirs(self._data_dir, PRIVATE_DIR, exist_ok=True)
        directories = [LogDirectory(machine.disk, node.data_dir) for node in self.nodes]
        identities = [directory.read_meta_properties() for directory in directories]
        free = iter(free_ports(self._host, len(self.nodes), CONTROLLER_PORTS))
        for node, directory in zip(self.nodes, directories, strict=True):
            known = next((v for v in read_snapshot_voters(directory) or () if v.id == node.id), None)
            node.controller_port = known.endpoints[0].port if known is not None else next(free)
        cluster_id = next((x.cluster_id for x in identities if x is not None), None)
        voters: tuple[InitialVoter, ...] = ()
        if cluster_id is None:  # where some are formatted already, the others learn the voters from them
            cluster_id = uuid_to_string(machine.uuid())
            voters = tuple(
                InitialVoter(node.id, machine.uuid(), (ListenerEndpoint(CONTROLLER, self._host, node.controller_port),))
                for node in self.nodes[: QUORUM_SIZE if len(self.nodes) >= QUORUM_SIZE else 1]
            )
        levels = bootstrap_feature_levels(None, {}, dynamic_quorum=True)
        credentials = () if self._secured is None else security_setup.scram_credential_records(self._secured)
        for node, directory, identity in zip(self.nodes, directories, identities, strict=True):
            if identity is None:
                plan = FormatPlan(node.id, cluster_id, levels, voters, credentials)
                format_directories([directory], directory, plan, machine.now_ms(), machine.uuid)

    def _settings_of(self, node: ClusterNode) -> dict[str, str]:
        """Return the settings of a node; settings of the user take precedence."""
        copies, least = str(min(len(self.nodes), 3)), str(min(len(self.nodes), 2))
        controllers = ",".join(format_address(x.host, x.controller_port) for x in self.nodes)
        name, secured = "PLAINTEXT", dict[str, str]()
        if self._secured is not None:
            name = security_setup.LISTENER
            secured = security_setup.cluster_settings(self._secured, self._data_dir, node.host, node.port)
        return {
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": least,
            "default.replication.factor": copies,
            "group.initial.rebalance.delay.ms": "0",
            **secured,
            **self.settings,
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "log.dirs": node.data_dir,
            "controller.listener.names": CONTROLLER,
            "controller.quorum.bootstrap.servers": controllers,
            "listeners": ",".join(
                f"{listener}://{format_address(node.host, port)}"
                for listener, port in ((name, node.port), (CONTROLLER, node.controller_port))
            ),
        }

    def kill(self, node_id: int) -> None:
        """``kill -9``."""
        self.node(node_id).signal(signal.SIGKILL)
        self.node(node_id).wait_end()

    def restart(self, node_id: int) -> None:
        """Start a node again, stopping it first where it still runs, and wait until it serves.

        Raises:
            ClusterFailed: it could not start.
        """
        node = self.node(node_id)
        node.signal(signal.SIGTERM)
        node.wait_end()
        node.start(self._settings_of(node))
        node.wait()

    def stop(self) -> None:
        """Stop every node cleanly and remove a temporary directory. Stopping twice is no error.

        In a child of the process that started them (``os.fork``), stopping has no effect on them.
        """
        atexit.unregister(self.stop)
        if self._owner_pid != os.getpid():
            return
        for node in self.nodes:
            node.signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait_end()
        if self._temporary is not None:
            _remove_directory(self._temporary, self._owner_pid)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
