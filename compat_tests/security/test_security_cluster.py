"""Three nodes with TLS and SASL between them: replacement of certificates, and share groups."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import wait_until
from ottla.runtime.system_env import SystemEnv
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.wire.codec.primitives import uuid_to_string

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODES = (1, 2, 3)


class SecureCluster:
    """Addresses, certificates and settings of three nodes."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.authority = CertificateAuthority(where / "ca")
        self.clients, self.internal, self.controllers = ([free_port() for _ in NODES] for _ in range(3))
        self.ids = [uuid_to_string(SystemEnv().uuid()) for _ in NODES]
        for node in NODES:
            self.issue(node, f"/CN=first{node}")
            (where / f"{node}.properties").write_text("".join(f"{k}={v}\n" for k, v in self.settings(node).items()))

    def keys(self, node: int) -> Path:
        """Return the path of a node's key and certificate."""
        return self.where / f"{node}.pem"

    def issue(self, node: int, subject: str) -> None:
        """Replace the certificate of a node."""
        made = self.authority.issue(f"node{node}", subject, alt="DNS:localhost")
        self.keys(node).write_bytes(Path(made.location).read_bytes())

    def settings(self, node: int) -> dict[str, str]:
        """Return the settings of a node."""
        at = node - 1
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": f"CLIENT://localhost:{self.clients[at]},INTERNAL://localhost:{self.internal[at]},"
            f"CONTROLLER://localhost:{self.controllers[at]}",
            "listener.security.protocol.map": "CONTROLLER:SASL_SSL,CLIENT:SASL_SSL,INTERNAL:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"localhost:{port}" for port in self.controllers),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} required username="node" '
            'password="node-secret" user_node="node-secret";',
            "listener.name.internal.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="broker" '
            'password="broker-secret";',
            "ssl.keystore.location": str(self.keys(node)),
            "ssl.truststore.location": self.authority.truststore.location,
            "min.insync.replicas": "2",
            "log.dirs": str(self.where / f"data{node}"),
        }

    def format(self) -> None:
        """Format the directory of each node, with two users."""
        voters = ",".join(f"{n}@localhost:{p}:{i}" for n, p, i in zip(NODES, self.controllers, self.ids, strict=True))
        cluster_id = uuid_to_string(SystemEnv().uuid())
        for node in NODES:
            command = [OTTLA, "format", "-t", cluster_id, "-c", str(self.where / f"{node}.properties"), "-I", voters]
            for user in ("broker", "alice"):
                command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={user}-secret]"]
            subprocess.run(command, check=True, capture_output=True)

    @property
    def client(self) -> dict[str, Any]:
        """Return the settings of a client."""
        return {
            "bootstrap.servers": f"localhost:{self.clients[0]}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "ssl.ca.location": self.authority.truststore.location,
            "log_level": 0,
        }

    def certificate_subject_at(self, port: int) -> str:
        """Return the subject of the certificate at a port."""
        context = ssl.create_default_context(cafile=self.authority.truststore.location)
        with (
            socket.create_connection(("localhost", port), 5) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            certificate: Any = tls.getpeercert()
            return str(certificate["subject"][0][0][1])


class SecureClusterNode(OttlaProcess):
    """Node of the secured cluster."""

    def __init__(self, cluster: SecureCluster, node: int) -> None:
        super().__init__(cluster.where / f"data{node}", cluster.clients[node - 1])
        self._file = cluster.where / f"{node}.properties"

    def command(self) -> list[str]:
        return [OTTLA, "serve", "--config", str(self._file)]

    def _answers(self) -> bool:
        return "Kafka Server started" in self.log.read_text()

    def start(self) -> Any:
        """Start, without waiting: each needs the others."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        return self


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecureCluster]:
    cluster = SecureCluster(tmp_path)
    cluster.format()
    with ExitStack() as stack:
        nodes = [stack.enter_context(SecureClusterNode(cluster, node)) for node in NODES]
        wait_until(lambda: all(node._answers() for node in nodes))
        yield cluster
    for node in nodes:
        log = node.log.read_text()
        assert "Traceback" not in log, log
        assert "secret" not in log


def test_certificate_replacement_on_all_nodes_under_load_loses_no_record(cluster: SecureCluster) -> None:
    admin = AdminClient(cluster.client)
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result()
    with NumberWriter(cluster.client["bootstrap.servers"], "t", partitioned(6), config=cluster.client) as writer:
        writer.wait_for_progress(200)
        for node in NODES:
            cluster.issue(node, f"/CN=second{node}")
            keys, change = str(cluster.keys(node)), AlterConfigOpType.SET
            changes = [
                ConfigEntry(f"listener.name.{listener}.ssl.keystore.location", keys, incremental_operation=change)
                for listener in ("client", "internal", "controller")
            ]
            resource = ConfigResource("broker", str(node), incremental_configs=changes)
            admin.incremental_alter_configs([resource])[resource].result()
            for ports in (cluster.clients, cluster.internal, cluster.controllers):
                port = ports[node - 1]
                wait_until(lambda port=port, name=f"second{node}": cluster.certificate_subject_at(port) == name)  # type: ignore[misc]
        writer.wait_for_progress(200)
    assert writer.refused == []
    assert sorted(map(int, read(cluster, len(writer.acknowledged)))) == sorted(writer.acknowledged)


def test_share_group_on_brokers_with_sasl_persists_its_state(cluster: SecureCluster) -> None:
    admin = AdminClient(cluster.client)
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result()
    producer = Producer(cluster.client)
    seen: set[int | None] = set()
    with ShareConsumer(cluster.client | {"group.id": "shared"}) as reader:
        reader.subscribe(["t"])

        def more() -> bool:
            for partition in range(6):
                producer.produce("t", b"work", partition=partition)
            assert producer.flush(120) == 0
            seen.update(message.partition() for message in reader.poll(1.0) if not message.error())
            return len(seen) == 6

        wait_until(more)  # partitions of three leaders, with states at one coordinator


def read(cluster: SecureCluster, count: int) -> list[bytes]:
    """Return the records of the topic."""
    consumer = Consumer(cluster.client | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    out: list[bytes] = []

    def more() -> bool:
        out.extend(m.value() for m in consumer.consume(500, 1.0) if not m.error())
        return len(out) >= count

    wait_until(more)
    consumer.close()
    return out
