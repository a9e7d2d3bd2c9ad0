"""Services of a compose file as processes: one network namespace, host name and ``/etc/hosts`` for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from compat_tests.cluster.network_namespaces import NamespaceNetwork
from ottla.cli.node_setup.container import DATA_DIRECTORY

LOG_DIRECTORY = Path("/tmp/kraft-combined-logs")
"""``KAFKA_LOG_DIRS`` of Kafka's compose files; each service sees a directory of its own there."""
READY = "Kafka Server started"
_START = """
hostname "$1"
if [ -d "$5" ]; then
    mount -t tmpfs tmpfs /mnt; mkdir /mnt/upper /mnt/work
    mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
    mkdir -p /etc/kafka/secrets; mount --bind "$5" /etc/kafka/secrets
fi
mount --bind "$2" /etc/hosts
case "$4" in /var/lib/*) mount -t tmpfs tmpfs /var/lib; mkdir -p "$4";; esac
mount --bind "$3" "$4"
shift 5
exec "$@"
"""
_STOP_S = 30


def load_services(file: Path) -> dict[str, dict[str, Any]]:
    """Return the services of a compose file that run Ottla's image."""
    services: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return {name: service for name, service in services.items() if service["image"] == "ottla"}


class PublishedPort(NamedTuple):
    """Port that a compose file publishes: ``[ADDRESS:]OUTSIDE:INSIDE``; an empty address means all of the machine's."""

    service: str
    address: str
    outside: int
    inside: int


def published_ports(services: Mapping[str, Mapping[str, Any]]) -> list[PublishedPort]:
    """Return the published ports of services in their order."""
    out = []
    for name, service in services.items():
        for port in service.get("ports", ()):
            *address, outside, inside = str(port).split(":")
            out.append(PublishedPort(name, ":".join(address), int(outside), int(inside)))
    return out


class ComposeNetwork:
    """Services of a compose file, and one namespace more for the machine with the published ports."""

    def __init__(self, services: Mapping[str, Mapping[str, Any]], directory: Path, entry: list[str]) -> None:
        self.services = services
        self.directory = directory
        self._entry = entry
        self._network = NamespaceNetwork(len(services) + 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._members = {name: number for number, name in enumerate(services, 1)}

    def __enter__(self) -> ComposeNetwork:
        self._network.__enter__()
        LOG_DIRECTORY.mkdir(exist_ok=True)
        lines = [f"{self._network.host(member)} {name}" for name, member in self._members.items()]
        self._hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self._processes):
            self.stop(name, signal.SIGKILL)
        self._network.__exit__(None, None, None)
        if not any(LOG_DIRECTORY.iterdir()):
            LOG_DIRECTORY.rmdir()

    @property
    def _hosts(self) -> Path:
        return self.directory / "hosts"

    @property
    def secrets(self) -> Path:
        """Return the directory that services see as ``/etc/kafka/secrets``, if it exists."""
        return self.directory / "secrets"

    def data(self, name: str) -> Path:
        """Return the log directory of a service."""
        return self.directory / name

    def log(self, name: str) -> str:
        """Return what a service has printed."""
        return (self.directory / f"{name}.log").read_text()

    def start(self, name: str) -> None:
        """Start a service with the variables of the compose file and no others."""
        self.data(name).mkdir(exist_ok=True)
        given = self.services[name]["environment"]
        environment = {"PATH": os.environ["PATH"], **{key: str(value) for key, value in given.items()}}
        log_directory = environment.get("KAFKA_LOG_DIRS", DATA_DIRECTORY)
        command = [
            *self._network.command(self._members[name]),
            *("unshare", "--uts", "--mount", "sh", "-ec", _START, "sh"),
            *(self.services[name]["hostname"], str(self._hosts), str(self.data(name)), log_directory),
            str(self.secrets),
            *self._entry,
        ]
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def is_ready(self, name: str) -> bool:
        """Return True when the service has logged that it started.

        Raises:
            RuntimeError: The service has ended.
        """
        if self._processes[name].poll() is not None:
            raise RuntimeError(f"{name} ended:\n{self.log(name)[-4000:]}")
        return READY in self.log(name)

    def stop(self, name: str, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Stop a service and return its exit status."""
        process = self._processes.pop(name)
        process.send_signal(with_signal)
        return process.wait(_STOP_S)

    def run_on_host(self, module: str, *arguments: str, ports: Iterable[PublishedPort], **environment: str) -> str:
        """Run a module on the machine with the published ports, the last arguments, and return its output."""
        published = [f"{x.outside}={self._network.host(self._members[x.service])}:{x.inside}" for x in ports]
        command = [*self._network.command(len(self.services) + 1), sys.executable, "-m", module]
        command += [*arguments, *published]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
