"""Kerberos: the same keytab and clients on Ottla and on Apache Kafka; the tickets come from a real KDC.

Needs Debian's ``krb5-kdc krb5-admin-server krb5-user kcat libsasl2-modules-gssapi-mit`` and the package ``gssapi``;
skipped where something is missing. ``OTTLA_KERBEROS=all`` runs every cell of the Java client, else each second one, and
presents an expired ticket.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from compat_tests.security.java_login import log_in_by_java
from compat_tests.security.kdc import MISSING_PROGRAMS, SKEW_S, KerberosRealm
from compat_tests.security.secure_listeners import KafkaWithListeners, OttlaWithListeners, listener_settings
from compat_tests.support.jars import classpath, jars
from compat_tests.support.raw_client import RawClient
from ottla.broker.security.authn.tests.test_kerberos_name_rules import CLASSES, NAMES, RULES, made
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.xdist_group(__name__)
with_a_kdc = pytest.mark.skipif(bool(MISSING_PROGRAMS), reason=f"not on this machine: {', '.join(MISSING_PROGRAMS)}")
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
ALL = os.environ.get("OTTLA_KERBEROS") == "all"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "TICKETS": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "STALE": "SASL_PLAINTEXT",
    "NOBODY": "SASL_PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
}


class KerberosFixture:
    """Realm, keys of services and clients, and the settings that name them."""

    def __init__(self, realm: KerberosRealm) -> None:
        self.realm = realm
        self.services = realm.add_principals("kafka.keytab", "kafka/localhost")
        self.stale = realm.add_principals("stale.keytab", "stale/localhost")
        realm.change_key("stale/localhost")
        realm.add_principals("http.keytab", "http/localhost")
        self.clients = realm.add_principals("clients.keytab", "alice", "bob/admin")
        authority = CertificateAuthority(realm.where / "ca")
        self.trusted = authority.truststore.location
        self.certificate = authority.issue("server", "/CN=localhost", alt="DNS:localhost").location

    def settings(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Return the settings of a broker: the same for both kinds of node."""
        out = {
            **listener_settings(ports, PROTOCOLS),
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificate,
            "listener.name.nobody.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](x.*)",
        }
        for listener in ("tickets", "both", "stale", "nobody"):
            keys, service = (self.stale, "stale") if listener == "stale" else (self.services, "kafka")
            own = f'keyTab="{keys}" principal="{service}/localhost@{self.realm.name}" isInitiator=false'
            out[f"listener.name.{listener}.gssapi.sasl.jaas.config"] = f"{MODULE} {own};"
        return out

    def client(self, listener: str, principal: str = "alice", service: str = "kafka") -> dict[str, str]:
        """Return the settings of a Java client without the port."""
        own = f'keyTab="{self.clients}" principal="{principal}@{self.realm.name}"'
        return {
            "listener": listener,
            "security.protocol": PROTOCOLS[listener],
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": service,
            "sasl.jaas.config": f"{MODULE} {own};",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }

    def cells(self) -> dict[str, dict[str, str]]:
        """Return the logins by name."""
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        out = {
            "a ticket": self.client("TICKETS"),
            "over TLS": self.client("BOTH"),
            "another service's ticket": self.client("TICKETS", service="http"),
            "a service nobody knows": self.client("TICKETS", service="unknown"),
            "a key that was changed": self.client("STALE", service="stale"),
            "no rule makes a name": self.client("NOBODY"),
            "of two parts": self.client("TICKETS", "bob/admin"),
            "another mechanism": self.client("TICKETS")
            | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f'{scram} required username="a" password="b";'},
        }
        return dict(list(out.items())[:: 1 if ALL else 2])

    def java(self) -> str:
        """Return the options of Java that name the realm."""
        return f"-Djava.security.krb5.conf={self.realm.config}"


class KerberosOttla(OttlaWithListeners):
    """``ottla serve`` with listeners that accept tickets."""

    def __init__(self, place: KerberosFixture, data_dir: Path) -> None:
        self.place = place
        super().__init__(data_dir, PROTOCOLS, place.settings)

    def command(self) -> list[str]:
        env = [f"KRB5_CONFIG={self.place.realm.server_config}", f"KRB5RCACHEDIR={self.data_dir.parent}"]
        return ["env", *env, *super().command()]


class KerberosKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, place: KerberosFixture, data_dir: Path) -> None:
        self.place = place
        super().__init__(data_dir, PROTOCOLS, place.settings)

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-Djava.security.krb5.conf={self.place.realm.server_config}", *rest]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosFixture]:
    with KerberosRealm(tmp_path_factory.mktemp("realm")) as realm:
        yield KerberosFixture(realm)


@pytest.fixture(scope="module")
def taking(place: KerberosFixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosOttla]:
    jars("kafka")
    process = KerberosOttla(place, tmp_path_factory.mktemp("ottla") / "data")
    with process:
        yield process
        status = process.status()
    assert status is None, f"ended with status {status}: {process.log.read_text()[-4000:]}"
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


class GssapiClient:
    """Client of GSS-API that may send wrong tokens."""

    def __init__(self, place: KerberosFixture, port: int, *, both: bool = True) -> None:
        """Connect; ``both`` requests mutual authentication."""
        import gssapi

        keys = {"client_keytab": place.clients, "ccache": f"FILE:{place.realm.where}/raw"}
        name = gssapi.Name(f"alice@{place.realm.name}", gssapi.NameType.kerberos_principal)
        there = gssapi.Name(f"kafka/localhost@{place.realm.name}", gssapi.NameType.kerberos_principal)
        flags = [gssapi.RequirementFlag.integrity] + ([gssapi.RequirementFlag.mutual_authentication] if both else [])
        self.context: Any = gssapi.SecurityContext(
            name=there, creds=gssapi.Credentials(name=name, usage="initiate", store=keys), usage="initiate", flags=flags
        )
        self.first: bytes = self.context.step()
        self.peer = RawClient(port)
        self.peer.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("GSSAPI"))

    def send_token(self, token: bytes) -> bytes:
        """Send a token and return the response.

        Raises:
            LoginRefused: The server refused the token.
        """
        try:
            answer = self.peer.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))
        except ConnectionError:
            raise LoginRefused("closed") from None
        if answer.error_code:
            raise LoginRefused(f"{answer.error_code}: {answer.error_message}")
        return bytes(answer.auth_bytes)

    def offered(self) -> bytes:
        """Return the security layers that the server offers after the ticket."""
        token = self.send_token(self.first)
        if not self.context.complete:
            self.context.step(token)
            token = self.send_token(b"")
        return bytes(self.context.unwrap(token).message)

    def choose(self, chosen: bytes) -> str:
        """Send the chosen layer; return the result of the login."""
        token = self.send_token(self.context.wrap(chosen, encrypt=False).message)
        try:
            self.peer.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1"))
        except ConnectionError:
            return f"told {token!r}, and hung up on"
        return f"in, told {token!r}"


class LoginRefused(Exception):
    """Error: the login was refused."""


def raw_cells(place: KerberosFixture, ports: dict[str, int]) -> dict[str, Callable[[], str]]:
    """Return the scenarios of the GSS-API client."""
    port = ports["TICKETS"]

    def chosen(chosen: bytes, *, both: bool = True, listener: str = "TICKETS") -> Callable[[], str]:
        def cell() -> str:
            client = GssapiClient(place, ports[listener], both=both)
            return f"{client.offered().hex()} {client.choose(chosen)}"

        return cell

    def first(token: bytes) -> Callable[[], str]:
        return lambda: GssapiClient(place, port).send_token(token).hex()

    def talkative() -> str:
        client = GssapiClient(place, port)
        client.send_token(client.first)
        return client.send_token(b"x").hex()

    def forged() -> str:
        client = GssapiClient(place, port)
        client.offered()
        sealed = bytearray(client.context.wrap(b"\x01\0\0\0", encrypt=False).message)
        sealed[-1] ^= 1
        return client.send_token(bytes(sealed)).hex()

    def again() -> str:
        client = GssapiClient(place, port)
        client.send_token(client.first)
        return GssapiClient(place, port).send_token(client.first).hex()

    def late() -> str:
        client = GssapiClient(place, port)
        time.sleep(SKEW_S + 2)
        return client.send_token(client.first).hex()

    out = {
        "no protection": chosen(b"\x01\0\0\0"),
        "no rule makes a name": chosen(b"\x01\0\0\0", listener="NOBODY"),
        "the server proves nothing": chosen(b"\x01\0\0\0", both=False),
        "somebody else's name": chosen(b"\x01\0\0\0bob"),
        "integrity": chosen(b"\x02\0\xff\xff"),
        "all three": chosen(b"\x07\0\xff\xff"),
        "no choice": chosen(b""),
        "half a choice": chosen(b"\x01\0"),
        "no ticket": first(b""),
        "garbage": first(b"\x60garbage"),
        "much garbage": first(bytes(400_000)),
        "words where none belong": talkative,
        "a forged choice": forged,
        "a ticket that was shown before": again,
    }
    return out | ({"a ticket shown late": late} if ALL else {})


def by_raw(place: KerberosFixture, ports: dict[str, int]) -> dict[str, str]:
    """Return the response to each cell."""
    out = {}
    for name, cell in raw_cells(place, ports).items():
        try:
            out[name] = cell()
        except LoginRefused as end:
            out[name] = str(end)
    return out


def by_name(cells: dict[str, dict[str, str]], ports: dict[str, int]) -> dict[str, dict[str, str]]:
    """Return the cells with the addresses of a node's listeners."""
    return {
        name: {"bootstrap.servers": f"localhost:{ports[values['listener']]}", **values}
        for name, values in cells.items()
    }


@with_a_kdc
def test_kerberos_login_results_equal_kafka(
    place: KerberosFixture, taking: KerberosOttla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", place.realm.config)
    cells = place.cells()
    ours = log_in_by_java(by_name(cells, taking.ports), tmp_path / "ours", place.java())
    ours_raw = by_raw(place, taking.ports)
    with KerberosKafka(place, tmp_path / "kafka") as kafka:
        theirs = log_in_by_java(by_name(cells, kafka.ports), tmp_path / "theirs", place.java())
        theirs_raw = by_raw(place, kafka.ports)
    assert ours == theirs
    assert ours_raw == theirs_raw
    assert ours["a ticket"] == "in"
    assert ours_raw["no protection"].startswith("01010000 in")


def test_kerberos_name_rules_equal_kafka(tmp_path: Path) -> None:
    jars("kafka")
    table = tmp_path / "rows"
    rows = [*((rules, name) for rules in RULES for name in NAMES), *((rules, name) for rules, name, _ in CLASSES)]
    table.write_text("".join(f"{rules}\t{name}\n" for rules, name in rows), "utf-8")
    program = Path(__file__).parent.parent / "java" / "KerberosShortNames.java"
    command = ["java", "-cp", classpath(), str(program), "HERE.ORG", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert [made(*row) for row in rows] == done.stdout.splitlines()


def kcat(place: KerberosFixture, taking: KerberosOttla, listener: str, *arguments: str, text: str = "") -> Any:
    own = {
        "security.protocol": PROTOCOLS[listener],
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": place.clients,
        "sasl.kerberos.principal": f"alice@{place.realm.name}",
        "ssl.ca.location": place.trusted,
    }
    command = ["kcat", "-b", f"localhost:{taking.ports[listener]}", *arguments]
    command += [part for key, value in own.items() for part in ("-X", f"{key}={value}")]
    return subprocess.run(
        command, input=text, env=place.realm.environ, capture_output=True, text=True, timeout=300, check=False
    )


@with_a_kdc
@pytest.mark.parametrize("listener", ["TICKETS", "BOTH"])
def test_kcat_with_kerberos_produces_and_consumes(
    place: KerberosFixture, taking: KerberosOttla, topic: str, listener: str
) -> None:
    done = kcat(place, taking, listener, "-P", "-t", topic, text="one\ntwo\n")
    assert done.returncode == 0, done.stderr
    done = kcat(place, taking, listener, "-C", "-t", topic, "-e", "-q")
    assert done.stdout == "one\ntwo\n", done.stderr
