"""Cluster of several nodes on this machine, each a process of its own: for tests, and for ``ottla cluster start``.

    with ottla.Cluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)

Each node is broker and controller. The first three are voters of the quorum (only the first of two nodes).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType

from ottla.client.connection_security import ConnectionSecurity
from ottla.client.security_config import parse_connection_security
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.storage_formatter import FormatPlan, InitialVoter, format_directories, read_snapshot_voters
from ottla.env.disk import PRIVATE_DIR
from ottla.env.hosts import format_address, shift_port
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.java_properties import dumps_settings
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.runtime.real_disk import open_private
from ottla.runtime.system_env import SystemEnv
from ottla.tools import security_setup
from ottla.tools.blocking_client import BlockingClient
from ottla.tools.cluster_readiness import BrokersUnknown, wait_for_brokers
from ottla.tools.fault_controls import ClusterFaultControls, FaultControls
from ottla.tools.free_ports import CLIENT_PORTS, CONTROLLER_PORTS, free_ports
from ottla.tools.setting_values import SettingValue, broker_settings_text
from ottla.wire.codec.primitives import uuid_to_string

START_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0
QUORUM_SIZE = 3
MAX_PORT = 65_535
CONTROLLER = "CONTROLLER"
HTTP_LISTENERS = ("ottla.metrics.listener", "ottla.console.listener")
"""Settings with an address that each node needs for itself."""


class ClusterFailed(Exception):
    """Raised if the cluster, or a node at a restart, cannot start; for a node, with its id and its last log line."""


def _remove_directory(path: str, owner_pid: int) -> None:
    """Remove a temporary directory, unless this process is a child (``os.fork``) of the process that created it."""
    if os.getpid() == owner_pid:
        shutil.rmtree(path, ignore_errors=True)


class ClusterNode(FaultControls):
    """Node of a cluster, and its process while it runs."""

    def __init__(self, node_id: int, data_dir: str, host: str, port: int) -> None:
        self.id = node_id
        """Id of the node, from 1."""
        self.data_dir = data_dir
        """Path of the data directory."""
        self.log = f"{data_dir}.log"
        """Path of the file with the standard error of the process."""
        self.config = f"{data_dir}.properties"
        """Path of the node's properties file, with which ``ottla serve --config`` starts the node by hand."""
        self.host = host
        self.port = port
        """Port of the client listener."""
        self.controller_port = 0
        """Port of the controller listener; 0 before the first start."""
        self._process: subprocess.Popen[str] | None = None
        self._start_finished = threading.Event()
        self._ready = False

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of this node's client listener."""
        return format_address(self.host, self.port)

    def _fault_dir(self) -> str:
        return self.data_dir

    @property
    def pid(self) -> int | None:
        """Process id of the node; None if it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status of the ended process, negative for a signal; None before the start and while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self, settings: Mapping[str, str]) -> None:
        """Write ``settings`` to the properties file and start the process; return before the node is ready."""
        with open(open_private(self.config), "w", encoding="utf-8") as file:
            file.write(dumps_settings(settings))
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--config", self.config]
        self._start_finished, self._ready = threading.Event(), False
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603
        threading.Thread(target=self._listen, args=(self._process, self._start_finished), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], finished: threading.Event) -> None:
        """Read the standard output of the process to its end; set ``finished`` once the node is ready or has ended."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if "Kafka Server started" in line:
                    self._ready = True
                    finished.set()
        process.wait()
        finished.set()

    def wait(self) -> None:
        """Wait until the node that was started accepts connections of clients.

        Raises:
            ClusterFailed: the process ended, or is not ready within `START_WITHIN_S`.
        """
        if not self._start_finished.wait(START_WITHIN_S) or not self._ready:
            why = f"ended with status {self.status}" if self.status is not None else "is not ready yet"
            raise ClusterFailed(f"node {self.id} {why}: {self._last_log_line()}")

    def _last_log_line(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().rstrip().splitlines()
        return lines[-1] if lines else "its log is empty"

    def signal(self, number: int) -> None:
        """Send a signal to the process if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wait_end(self) -> None:
        """Wait until the process ends; after `STOP_WITHIN_S` kill it with SIGKILL."""
        if self._process is not None:
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Cluster(ClusterFaultControls):
    """Cluster of nodes that run as processes of this machine; `start` or ``with`` starts them.

    Args:
        nodes: number of nodes.
        data_dir: parent of the nodes' data directories; None creates a temporary one that `stop` removes.
        port: client port of the first node, the next ones have the following ports; 0 selects free ports.
        host: address to listen at.
        settings: broker settings of all nodes. A port in ``ottla.metrics.listener`` or ``ottla.console.listener`` is
            that of the first node; the next ones have the following ports.
        tls: use TLS for all listeners; a CA and certificates are generated. A stored setup stays as it is, SASL too.
        sasl: require ``SCRAM-SHA-512``, ``SCRAM-SHA-256`` or ``PLAIN``, of nodes too (controllers PLAIN); adds a user.

    Raises:
        ConfigException: an unknown setting, or a value that is invalid.
        ValueError: no node, an empty path, or ports above 65535. OSError: no free ports, or no temporary directory.
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
        """Nodes of the cluster, in the order of their ids, which start at 1."""
        self._host = host

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of each node, separated by commas."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def client_config(self, kind: str = "confluent") -> dict[str, str]:
        """Return client settings (those of security only after the start) with the names of a kind of client library.

        Raises:
            ValueError: ``kind`` is none of ``confluent``, ``librdkafka``, ``java`` and ``kafka-python``.
        """
        made = self._secured or security_setup.SecuritySetup("PLAINTEXT", "", "", "")
        return security_setup.client_config(made, kind, self.bootstrap_servers)

    def write_client_files(self) -> list[str]:
        """Write files with client settings into the data directory, if it has security; return a text for each file."""
        if self._secured is None:
            return []
        return security_setup.write_client_files(self._secured, self._data_dir, self.bootstrap_servers)

    @property
    def client(self) -> BlockingClient:
        """New client of this cluster: ``produce``, ``records``, ``expect``, ``wait_for``, ``create_topic`` etc."""
        return BlockingClient(self.bootstrap_servers, self._access())

    def _access(self) -> ConnectionSecurity:
        return parse_connection_security(self.client_config("java"))

    def _fault_nodes(self) -> list[ClusterNode]:
        return self.nodes

    def node(self, node_id: int) -> ClusterNode:
        """Return the node with an id; ids start at 1.

        Raises:
            ValueError: no such node.
        """
        if not 1 <= node_id <= len(self.nodes):
            raise ValueError(f"node {node_id} (1 to {len(self.nodes)} expected)")
        return self.nodes[node_id - 1]

    # ------------------------------------------------------------------ start and stop

    def start(self) -> Cluster:
        """Format new directories, start all nodes, wait until each knows all brokers; stop them if that fails.

        Raises:
            ClusterFailed: the cluster runs already (and goes on), the stored security does not fit, or a node failed.
            CorruptFile: malformed ``meta.properties``. OSError: foreign host address, failed file or certificate.
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
            if len(self.nodes) > 1:
                self._wait_for_brokers()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_for_brokers(self) -> None:
        """Wait until each node knows all brokers; raise ClusterFailed if one does not within `START_WITHIN_S`."""
        servers, access = [node.bootstrap_servers for node in self.nodes], self._access()
        ids = [node.id for node in self.nodes]
        try:
            run_blocking(wait_for_brokers(BlockingEnv(), servers, ids, access, START_WITHIN_S))
        except BrokersUnknown as error:
            raise ClusterFailed(str(error)) from None

    def _secure(self) -> None:
        """Create certificates and one user for all nodes, or read those of an earlier start, if TLS or SASL is wanted.

        Raises:
            ClusterFailed: the nodes were formatted without security, or the mechanism or stored authority is invalid.
            OSError: a file cannot be read or written, or (InvalidTlsConfig) certificates cannot be created.
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
        """Assign controller ports (stored ones if present, else free ones), and format new directories."""
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
        if cluster_id is None:  # else the new nodes learn the voters from the formatted ones
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
        """Return the broker settings of a node: defaults, over them those of the user, over them identity and ports."""
        copies, least = str(min(len(self.nodes), 3)), str(min(len(self.nodes), 2))
        controllers = ",".join(format_address(x.host, x.controller_port) for x in self.nodes)
        name, secured = "PLAINTEXT", dict[str, str]()
        http = {key: self.settings[key] for key in HTTP_LISTENERS if key in self.settings}
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
            **{key: shift_port(address, node.id - 1) for key, address in http.items()},
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
        """Kill a node with SIGKILL, if it runs, and wait for the end of its process."""
        self.node(node_id).signal(signal.SIGKILL)
        self.node(node_id).wait_end()

    def restart(self, node_id: int) -> None:
        """Stop a node with SIGTERM if it runs, start it again, and wait until it is ready.

        Raises:
            ClusterFailed: the node failed to start, or is not ready within `START_WITHIN_S` and may still run.
        """
        node = self.node(node_id)
        node.signal(signal.SIGTERM)
        node.wait_end()
        node.start(self._settings_of(node))
        node.wait()

    def stop(self) -> None:
        """Stop all nodes with SIGTERM, wait for their ends as `ClusterNode.wait_end`, and remove a temporary directory.

        No effect in a child (``os.fork``) of the process that started the nodes.
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
