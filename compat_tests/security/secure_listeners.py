"""Broker with several listeners and their certificates: the same settings for both kinds of node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from compat_tests.support.processes import OTTLA, KafkaProcess, OttlaProcess, free_ports
from ottla.runtime.tests.certificate_authority import CertificateAuthority


def listener_settings(
    ports: Mapping[str, int], protocols: Mapping[str, str], host: str = "localhost"
) -> dict[str, str]:
    """Return the settings of listeners by their names; brokers connect to each other at the one called PLAINTEXT."""
    at = {name: f"{name}://{host}:{port}" for name, port in ports.items()}
    return {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join(where for name, where in at.items() if name != "CONTROLLER"),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }


class ListenerCertificates:
    """Files of certificates: a server's and a client's of one authority, one of another authority, and truststores."""

    def __init__(self, where: Path) -> None:
        self.where = where
        authority = CertificateAuthority(where / "ca")
        self.truststore = authority.truststore.location
        self.server = authority.issue("server", "/CN=localhost", alt="DNS:localhost").location
        self.client = authority.issue("client", "/O=Here/CN=alice", alt="DNS:alice").location
        self.other = CertificateAuthority(where / "other").truststore.location
        self.untrusted = CertificateAuthority(where / "third").issue("mallory", "/CN=mallory").location

    def store_settings(self) -> dict[str, str]:
        """Return the settings of a broker with these stores."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.truststore,
        }


SettingsFactory = Callable[[Mapping[str, int]], Mapping[str, str]]
"""Function from the ports of a broker's listeners to all its settings."""


def assign_ports(protocols: Mapping[str, str], **known: int) -> dict[str, int]:
    """Return a free port for each listener."""
    free = [name for name in protocols if name not in known]
    return {**known, **dict(zip(free, free_ports(len(free)), strict=True))}


class OttlaWithListeners(OttlaProcess):
    """``ottla serve`` with a properties file."""

    def __init__(self, data_dir: Path, protocols: Mapping[str, str], settings: SettingsFactory) -> None:
        super().__init__(data_dir)
        self.ports = assign_ports(protocols, PLAINTEXT=self.port)
        self.file = data_dir.parent / "ottla.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in settings(self.ports).items()))

    def command(self) -> list[str]:
        """Return the command line of the node."""
        return [OTTLA, "serve", "--config", str(self.file), "--data-dir", str(self.data_dir)]


class KafkaWithListeners(KafkaProcess):
    """Apache Kafka with the same file."""

    def __init__(self, data_dir: Path, protocols: Mapping[str, str], settings: SettingsFactory) -> None:
        super().__init__(data_dir)
        self.ports = assign_ports(protocols, PLAINTEXT=self.port, CONTROLLER=self.controller_port)
        with self.config.open("a") as out:
            out.writelines(f"{key}={value}\n" for key, value in settings(self.ports).items())
