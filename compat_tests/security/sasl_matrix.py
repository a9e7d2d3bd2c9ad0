"""Login matrix of stock clients: mechanisms in plain text and on TLS, right and wrong; ``OTTLA_MECHANISMS=all``.

A client's program under ``clients/`` gets a list of logins and prints the result of each, or the class of its error.
Mechanisms that a client's library lacks stand in `UNSUPPORTED`, with the reason.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.clients.client_matrix import SOURCES, ToolchainMissing, _fetched, _kcat
from compat_tests.security.java_login import log_in_by_java
from compat_tests.security.secure_listeners import ListenerCertificates, listener_settings
from compat_tests.security.test_oauthbearer import ALLOWED, PACKAGE, token
from compat_tests.support.jars import jars
from ottla.broker.security.authn.tests.token_issuer import OTHER

PASSWORD = "alice-secret"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": f"{PACKAGE}.OAuthBearerLoginModule",
}
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "IN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "LESS": "SASL_PLAINTEXT",
    "LESSTLS": "SASL_SSL",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "CONTROLLER": "PLAINTEXT",
}
"""Listeners; two of them accept only PLAIN."""
LoginCell = dict[str, Any]


class SaslFixture(ListenerCertificates):
    """Certificates and keys, and the settings that name them."""

    def __init__(self, where: Path, published: bytes) -> None:
        super().__init__(where)
        self.keys = where / "keys.json"
        self.keys.write_bytes(published)

    def settings(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Return the settings of a broker: the same for both kinds of node."""
        handler = "oauthbearer.sasl.server.callback.handler.class"
        out = {
            **listener_settings(ports, PROTOCOLS),
            **self.store_settings(),
            "sasl.enabled.mechanisms": ",".join(MODULES),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "https://idp",
        }
        for listener in ("in", "both", "less", "lesstls"):
            own = f"listener.name.{listener}."
            out[f"{own}plain.sasl.jaas.config"] = f'{MODULES["PLAIN"]} required user_alice="{PASSWORD}";'
            if listener.startswith("less"):
                out[f"{own}sasl.enabled.mechanisms"] = "PLAIN"
                continue
            out[f"{own}oauthbearer.sasl.jaas.config"] = f"{MODULES['OAUTHBEARER']} required;"
            out[own + handler] = f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                out[f"{own}{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES[mechanism]} required;"
        return out

    def cells(self) -> Iterator[LoginCell]:
        """Return all logins; ``listener`` is replaced by an address."""
        for listener, less, how in (("IN", "LESS", "in plain text"), ("BOTH", "LESSTLS", "on TLS")):
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                yield self._login(f"{mechanism} {how}", listener, mechanism)
                yield self._login(f"{mechanism} {how}: wrong password", listener, mechanism, password="wrong")
                yield self._login(f"{mechanism} {how}: unknown user", listener, mechanism, user="nobody")
            for name, made in (("", token()), (": expired", token(lasts_s=-5000)), (": another's key", token(OTHER))):
                yield self._token(f"OAUTHBEARER {how}{name}", listener, made)
            yield self._login(f"SCRAM-SHA-512 {how}: not enabled", less, "SCRAM-SHA-512")
            yield self._token(f"OAUTHBEARER {how}: not enabled", less, token())
        yield self._login("PLAIN on TLS: wrong authority", "BOTH", "PLAIN") | {"ca": self.other}
        yield self._cell("TLS", "TLS")
        yield self._cell("TLS: wrong authority", "TLS") | {"ca": self.other}
        yield self._cell("TLS: wrong host name", "TLS") | {"host": "127.0.0.1"}
        yield self._cell("TLS: host names not looked at", "TLS") | {"host": "127.0.0.1", "checks_host": False}
        yield self._cell("TLS: no certificate", "MUTUAL")
        yield self._cell("TLS: a certificate", "MUTUAL") | {"certificate": self.client}
        yield self._cell("TLS: a stranger's certificate", "MUTUAL") | {"certificate": self.untrusted}

    def _cell(self, name: str, listener: str) -> LoginCell:
        out: LoginCell = {"name": name, "listener": listener, "protocol": PROTOCOLS[listener], "host": "localhost"}
        if out["protocol"].endswith("SSL"):
            out |= {"ca": self.truststore, "checks_host": True}
        return out

    def _login(
        self, name: str, listener: str, mechanism: str, user: str = "alice", password: str = PASSWORD
    ) -> LoginCell:
        return self._cell(name, listener) | {"mechanism": mechanism, "user": user, "password": password}

    def _token(self, name: str, listener: str, made: str) -> LoginCell:
        return self._cell(name, listener) | {"mechanism": "OAUTHBEARER", "token": made}


SAMPLE = (
    "SCRAM-SHA-512 on TLS",
    "SCRAM-SHA-256 in plain text: wrong password",
    "PLAIN on TLS: unknown user",
    "OAUTHBEARER on TLS",
    "OAUTHBEARER in plain text: expired",
    "SCRAM-SHA-512 in plain text: not enabled",
    "TLS: wrong host name",
)
"""Mechanisms of each client in each run of the tests."""


def with_ports(cells: list[LoginCell], ports: Mapping[str, int]) -> list[LoginCell]:
    """Return the cells with the addresses of a node's listeners."""
    out = []
    for cell in cells:
        own = dict(cell)
        own["bootstrap"] = f"{own.pop('host')}:{ports[own.pop('listener')]}"
        out.append(own)
    return out


# ---------------------------------------------------------------- clients


class SaslClientProgram(NamedTuple):
    """Client library, its version, and the command of its program."""

    name: str
    version: str
    command: Callable[[], list[str]] | None
    """Command of the program; None for Kafka's client, whose program takes settings."""
    is_sampled: bool = True


def _python(name: str) -> list[str]:
    return [sys.executable, str(SOURCES / "login_python" / "logins.py"), name]


@cache
def _node() -> str:
    where = _fetched("login_node", ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"])
    return str(where / "logins.mjs")


@cache
def _go() -> str:
    return str(_fetched("login_go", ["go", "build", "-o", "login", "."]) / "login")


@cache
def _rust() -> str:
    if shutil.which("make") is None or not Path("/usr/include/openssl/ssl.h").exists():
        raise ToolchainMissing("its library is built with OpenSSL's headers, which are not here")
    return str(_fetched("login_rust", ["cargo", "build", "--quiet"]) / "target/debug/login")


CLIENTS = (
    SaslClientProgram("Java kafka-clients", "4.3.1", None, is_sampled=False),
    SaslClientProgram("confluent-kafka", "2.16.1", lambda: _python("confluent")),
    SaslClientProgram("kafka-python", "3.0.12", lambda: _python("kafka-python")),
    SaslClientProgram("aiokafka", "0.14.0", lambda: _python("aiokafka")),
    SaslClientProgram("franz-go", "1.22.2", lambda: [_go()]),
    SaslClientProgram("kafkajs", "2.2.4", lambda: ["node", _node()]),
    SaslClientProgram("rdkafka (Rust)", "0.39.0", lambda: [_rust()], is_sampled=False),
    SaslClientProgram("kcat", "1.7.1", lambda: ["env", f"KCAT={_kcat() / 'kcat'}", *_python("kcat")]),
)
UNSUPPORTED = {
    ("kcat", "OAUTHBEARER"): "it makes unsigned tokens, and asks a provider for others; none can be handed to it"
}
"""Reasons for missing support, by client and mechanism."""
_OLD = "its librdkafka 2.0.2 shows a nonce twice, which no Kafka takes since CVE-2024-56128"
EXPECTED_REFUSALS = {("kcat", "SCRAM-SHA-256"): _OLD, ("kcat", "SCRAM-SHA-512"): _OLD}
"""Reasons why the right password is refused, by Kafka too; by client and mechanism."""


def is_supported(client: SaslClientProgram, cell: LoginCell) -> bool:
    """Return True when a client supports this login."""
    return (client.name, cell.get("mechanism", "")) not in UNSUPPORTED


def _java(cells: list[LoginCell], where: Path) -> dict[str, str]:
    jars("kafka")
    where.mkdir()
    out, urls = {}, []
    for number, cell in enumerate(cells):
        conf = {"bootstrap.servers": cell["bootstrap"], "security.protocol": cell["protocol"]}
        if "ca" in cell:
            conf |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": cell["ca"]}
            conf["ssl.endpoint.identification.algorithm"] = "https" if cell["checks_host"] else ""
        if "certificate" in cell:
            conf |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": cell["certificate"]}
        if "mechanism" in cell:
            module, identity = MODULES[cell["mechanism"]], ""
            if "user" in cell:
                identity = f' username="{cell["user"]}" password="{cell["password"]}"'
            conf |= {"sasl.mechanism": cell["mechanism"], "sasl.jaas.config": f"{module} required{identity};"}
        if "token" in cell:
            file = where / f"{number}.token"
            file.write_text(cell["token"])
            urls.append(f"file://{file}")
            conf["sasl.login.callback.handler.class"] = f"{PACKAGE}.OAuthBearerLoginCallbackHandler"
            conf["sasl.oauthbearer.token.endpoint.url"] = urls[-1]
        out[cell["name"]] = conf
    results = log_in_by_java(out, where / "settings", ALLOWED + ",".join(urls))
    return {name: x if x == "in" else x.partition(":")[0] for name, x in results.items()}


def run_client(client: SaslClientProgram, cells: list[LoginCell], where: Path) -> dict[str, str]:
    """Return the result of each cell for a client.

    Raises:
        ToolchainMissing: The toolchain of the client is not installed.
    """
    if client.command is None:
        return _java(cells, where)
    command = client.command()
    where.with_suffix(".json").write_text(json.dumps(cells))
    done = subprocess.run(
        [*command, str(where.with_suffix(".json"))], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{client.name}: {done.stdout[-500:]}{done.stderr[-3000:]}"
    results: dict[str, str] = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert set(results) == {cell["name"] for cell in cells}
    return results
