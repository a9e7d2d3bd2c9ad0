"""Nodes as real processes: Ottla through its command line, and Apache Kafka 4.3.1."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from compat_tests.support.jars import CACHE, classpath, jars
from compat_tests.support.secret_scan import find_exposed_secrets
from ottla.log.java_properties import dumps
from ottla.tools.free_ports import free_ports as free_ports_among

OTTLA = str(Path(sys.executable).parent / "ottla")
CHECKED_OTTLA_COMMAND = (sys.executable, str(Path(__file__).with_name("checked_ottla.py")))
"""``ottla`` that checks the responses of its nodes."""
PORTS = range(15_000, 31_000)
_drawn_ports: set[int] = set()
MAX_CONCURRENT_KAFKAS = 2
"""Slots for Kafka processes, one for each test worker of CI: a process takes up to 1 GiB."""
READY_TIMEOUT_S = 180.0
"""Time limit of a start: three Kafkas beside a full test run take a minute; a process that ended is not waited for."""


def free_port() -> int:
    """Return a free port outside the ephemeral range: a JVM binds it only some seconds later."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many free ports, all different, which no other test worker and no earlier call gets.

    A node binds its ports later. If two nodes got the same port, the second would end at its start, and its test would
    talk to the first.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    among = [port for port in PORTS[worker::workers] if port not in _drawn_ports]
    if len(among) < max(count, 1_000):
        _drawn_ports.clear()
        among = list(PORTS[worker::workers])
    found = free_ports_among("127.0.0.1", count, among)
    _drawn_ports.update(found)
    return found


class NodeProcess:
    """Node in a process of its own."""

    def __init__(self, data_dir: Path, port: int | None = None) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log = data_dir.parent / f"{data_dir.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command of the process."""
        raise AssertionError("each kind of node has its own")

    def start(self) -> Any:
        """Start, and wait until ApiVersions gets a response."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.command()[0]} did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.settimeout(5)
                sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
                return len(sock.recv(4)) == 4
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None
        return self._process.pid

    def status(self) -> int | None:
        """Return the exit status; None while the process runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """``kill -9``."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


class OttlaProcess(NodeProcess):
    """``ottla serve``."""

    program: Sequence[str] = (OTTLA,)
    """Command in front of ``serve``: `CHECKED_OTTLA_COMMAND` in tests."""

    def __init__(self, data_dir: Path, port: int | None = None, **settings: str) -> None:
        super().__init__(data_dir, port)
        self.settings = settings

    def command(self) -> list[str]:
        """Return the command line."""
        out = [*self.program, "serve", "--listen", self.bootstrap]
        if "log_dirs" not in self.settings:
            out += ["--data-dir", str(self.data_dir)]
        for key, value in self.settings.items():
            out += ["--set", f"{key.replace('_', '.')}={value}"]
        return out

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        found = find_exposed_secrets(self.command(), self.log) if not any(error) else []
        assert not found, f"secrets in {self.log}: {found}"


def _wait_for_slot() -> IO[str]:
    """Return an open file whose lock is one of the ``MAX_CONCURRENT_KAFKAS`` slots; closing it frees the slot."""
    CACHE.mkdir(exist_ok=True)
    while True:
        for number in range(MAX_CONCURRENT_KAFKAS):
            slot = (CACHE / f"kafka-slot-{number}.lock").open("w")
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                slot.close()
            else:
                return slot
        time.sleep(0.1)


def _escaped(value: str) -> str:
    r"""Return a value for a properties file, which is ISO-8859-1: with ``\uXXXX`` for characters beyond ASCII."""
    return re.sub("[^\0-~]", lambda found: dumps({"": found[0]}).strip()[1:], value)


class KafkaProcess(NodeProcess):
    """Apache Kafka, one node, combined roles."""

    def __init__(self, data_dir: Path, port: int | None = None, **settings: str) -> None:
        super().__init__(data_dir, port)
        jars("kafka")
        self.controller_port = free_port()
        """Its own: directories made elsewhere name others, and who holds them runs beside."""
        # Records of scenarios have old timestamps: retention would delete them half a minute after the start.
        settings = {"log_initial_task_delay_ms": "3600000", **settings}
        more = "".join(f"{key.replace('_', '.')}={_escaped(value)}\n" for key, value in settings.items())
        self.config = data_dir.parent / f"{data_dir.name}.properties"
        self.config.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={data_dir}\n"
            f"controller.quorum.bootstrap.servers=localhost:{self.controller_port}\n"
            "controller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://localhost:{self.controller_port}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}\n"
            "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            f"transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n"
            f"share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n{more}"
        )
        if not (data_dir / "meta.properties").exists():
            self._java(
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "5L6g3nShT-eMCtK--X86sw",
                "--standalone",
                "-c",
                str(self.config),
            )

    def start(self) -> Any:
        """Start once fewer than ``MAX_CONCURRENT_KAFKAS`` such processes of this checkout run."""
        self._slot = _wait_for_slot()
        try:
            return super().start()
        except BaseException:
            self._slot.close()
            raise

    def kill(self) -> None:
        """``kill -9``."""
        super().kill()
        self._slot.close()

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        try:
            return super().stop()
        finally:
            self._slot.close()

    def _java(self, *arguments: str) -> None:
        subprocess.run(["java", "-cp", classpath(), *arguments], check=True, capture_output=True)

    def command(self) -> list[str]:
        """Return the command line."""
        return ["java", "-Xmx512m", "-cp", classpath(), "kafka.Kafka", str(self.config)]


def run_java_tool(
    name: str, *arguments: str, stdin: str = "", timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line classes to its end."""
    jars("kafka")
    main_class = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
    return subprocess.run(
        ["java", "-cp", classpath(), main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )


def java_tool(name: str, *arguments: str, stdin: str = "", timeout_s: float = 180) -> str:
    """Run one of Kafka's command-line classes and return its output.

    Raises:
        AssertionError: The tool failed.
    """
    done = run_java_tool(name, *arguments, stdin=stdin, timeout_s=timeout_s)
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
