"""Kerberos between nodes and in the commands of ``ottla``.

A broker registers at a remote controller and follows a leader. The commands present tickets to a node of either kind.
The KDC is a real one; skipped as `test_kerberos` is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.security.kdc import MISSING_PROGRAMS, KerberosRealm
from compat_tests.security.test_kerberos import MODULE, KerberosFixture, KerberosKafka, KerberosOttla
from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import wait_until

pytestmark = [
    pytest.mark.xdist_group(__name__),
    pytest.mark.skipif(bool(MISSING_PROGRAMS), reason=f"not on this machine: {', '.join(MISSING_PROGRAMS)}"),
]
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosRealm]:
    with KerberosRealm(tmp_path_factory.mktemp("realm")) as made:
        yield made


class KerberosNodePair:
    """Addresses and settings of a node with both roles and of a broker."""

    def __init__(self, realm: KerberosRealm, where: Path) -> None:
        self.realm, self.where = realm, where
        self.keytab = realm.add_principals("nodes.keytab", "kafka/localhost")
        self.ports = {name: free_port() for name in ("CONTROLLER", "CLIENT1", "CLIENT2", "INTERNAL1", "INTERNAL2")}
        for node in (1, 2):
            text = "".join(f"{key}={value}\n" for key, value in self.settings(node).items())
            self.file(node).write_text(text)
            how = ["--standalone"] if node == 1 else []
            command = [OTTLA, "format", "-t", CLUSTER_ID, "-c", str(self.file(node)), *how]
            subprocess.run(command, check=True, capture_output=True)

    def file(self, node: int) -> Path:
        """Return the path of a node's settings."""
        return self.where / f"{node}.properties"

    def settings(self, node: int) -> dict[str, str]:
        """Return the settings of a node."""
        at = {name: self.ports[f"{name}{node}"] for name in ("CLIENT", "INTERNAL")}
        if node == 1:
            at["CONTROLLER"] = self.ports["CONTROLLER"]
        keys = f'{MODULE} keyTab="{self.keytab}" principal="kafka/localhost@{self.realm.name}";'
        return {
            "process.roles": "broker,controller" if node == 1 else "broker",
            "node.id": str(node),
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in at.items()),
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"localhost:{self.ports['CONTROLLER']}",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.internal.gssapi.sasl.jaas.config": keys,
            "listener.name.controller.gssapi.sasl.jaas.config": keys,
            "log.dirs": str(self.where / f"data{node}"),
        }


class KerberosNode(OttlaProcess):
    """Node of the Kerberos cluster."""

    def __init__(self, pair: KerberosNodePair, node: int) -> None:
        super().__init__(pair.where / f"data{node}", pair.ports[f"CLIENT{node}"])
        self._pair, self._node = pair, node

    def command(self) -> list[str]:
        env = [f"KRB5_CONFIG={self._pair.realm.config}", f"KRB5RCACHEDIR={self._pair.where}"]
        return ["env", *env, OTTLA, "serve", "--config", str(self._pair.file(self._node))]


def test_broker_with_kerberos_between_nodes_registers_and_follows(realm: KerberosRealm, tmp_path: Path) -> None:
    pair = KerberosNodePair(realm, tmp_path)
    with ExitStack() as stack:
        nodes = [stack.enter_context(KerberosNode(pair, node)) for node in (1, 2)]
        admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=300).brokers) == 2)
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]])])["t"].result(120)
        producer = Producer({"bootstrap.servers": nodes[0].bootstrap, "acks": "all"})
        for _ in range(100):
            producer.produce("t", b"x")
        assert producer.flush(120) == 0

        def in_sync() -> bool:
            return len(admin.list_topics("t", timeout=300).topics["t"].partitions[0].isrs) == 2

        wait_until(in_sync)
        assert (tmp_path / "data2" / "t-0" / "00000000000000000000.log").stat().st_size > 0
    for node in nodes:
        assert "Traceback" not in node.log.read_text(), node.log.read_text()


def by_ottla(place: KerberosFixture, ports: dict[str, int], where: Path) -> dict[str, Any]:
    """Return the exit status of the command for each login."""
    where.mkdir()
    cached = {"sasl.jaas.config": f"{MODULE.split()[0]} required useTicketCache=true;"}
    ways = {
        "a ticket": place.client("TICKETS"),
        "over TLS": place.client("BOTH"),
        "another service's ticket": place.client("TICKETS", service="http"),
        "a service nobody knows": place.client("TICKETS", service="unknown"),
        "no rule makes a name": place.client("NOBODY"),
        "a ticket that is there": place.client("TICKETS") | cached,
    }
    out = {}
    for number, (name, values) in enumerate(ways.items()):
        file = where / f"{number}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        at = ["-b", f"localhost:{ports[values['listener']]}", "--command-config", str(file)]
        done = subprocess.run(
            [OTTLA, "topic", "list", *at],
            env=place.realm.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        out[name] = done.returncode == 0
    return out


def test_ottla_commands_with_ticket_log_in_at_ottla_and_kafka(realm: KerberosRealm, tmp_path: Path) -> None:
    place = KerberosFixture(realm)
    command = ["kinit", "-k", "-t", place.clients, f"alice@{realm.name}"]
    subprocess.run(command, env=realm.environ, check=True, capture_output=True)
    with KerberosOttla(place, tmp_path / "ottla") as taking:
        ours = by_ottla(place, taking.ports, tmp_path / "ours")
    with KerberosKafka(place, tmp_path / "kafka") as kafka:
        theirs = by_ottla(place, kafka.ports, tmp_path / "theirs")
    assert ours == theirs
    assert [name for name, is_in in ours.items() if is_in] == ["a ticket", "over TLS", "a ticket that is there"]
