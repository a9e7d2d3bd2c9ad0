"""Safety of dynamic settings: they reveal no file, open no connection, and grant no access."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.security.test_authentication import PLAIN, SecuredOttla, SecurityFiles
from compat_tests.support.raw_client import RawClient, wait_until, wait_until_brokers_current
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import describe_configs, incremental_alter_configs
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
CONTENT = "what-the-file-holds"


class DecoyServer:
    """Server at an address that is named in settings: it counts connections and sends no response."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.came = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.came += 1
            sock.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def decoy() -> Iterator[DecoyServer]:
    made = DecoyServer()
    yield made
    made.close()


def named(port: int, file: Path) -> dict[str, str]:
    """Return settings that name a class, an address or a file."""
    web, module = f"http://127.0.0.1:{port}/keys", "com.sun.security.auth.module"
    tokens = "org.apache.kafka.common.security.oauthbearer"
    return {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "somebody.elses.setting": f"${{file:{file}:password}}",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required user_mallory="mallory-secret";',
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{module}.JndiLoginModule required "
        f'user.provider.url="ldap://127.0.0.1:{port}/x" group.provider.url="ldap://127.0.0.1:{port}/x";',
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": f"{tokens}.internals.unsecured."
        "OAuthBearerUnsecuredValidatorCallbackHandler",
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{tokens}.OAuthBearerLoginModule required;",
        "listener.name.login.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": web,
        "listener.name.login.oauthbearer.sasl.oauthbearer.token.endpoint.url": web,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{file}",
        "sasl.jaas.config": f'{module}.LdapLoginModule required userProvider="ldap://127.0.0.1:{port}/x";',
        "sasl.login.class": "os.system",
        "principal.builder.class": "os.system",
        "ssl.engine.factory.class": "os.system",
        "metric.reporters": "os.system",
        "authorizer.class.name": "",
        "super.users": "User:mallory;User:ANONYMOUS",
        "listener.security.protocol.map": "LOGIN:PLAINTEXT,MUTUAL:PLAINTEXT",
        "listener.name.mutual.ssl.client.auth": "none",
        "ssl.client.auth": "none",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:.*/admin/",
        "listener.name.mutual.ssl.truststore.location": str(file),
    }


def can_log_in(port: int, user: str, password: str) -> bool:
    """Log in by PLAIN; return True on success."""
    peer = RawClient(port)
    try:
        peer.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        request = SaslAuthenticateRequest(f"\0{user}\0{password}".encode())
        return bool(peer.call(ApiKey.SASL_AUTHENTICATE, 2, request).error_code == 0)
    finally:
        peer.close()


def offers(port: int) -> list[str]:
    """Return the mechanisms of a listener."""
    peer = RawClient(port)
    try:
        return sorted(peer.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("none")).mechanisms)
    finally:
        peer.close()


def accepts_certificate(files: SecurityFiles, port: int, certificate: str | None) -> bool:
    """Return True when a TLS listener accepts a client with this certificate, or without one."""
    context = ssl.create_default_context(cafile=files.truststore)
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with (
            socket.create_connection(("localhost", port), 10) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            tls.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            return len(tls.recv(4)) == 4
    except (ssl.SSLError, ConnectionError):
        return False


def test_dynamic_security_settings_read_no_file_and_connect_to_no_host(
    files: SecurityFiles, secured: SecuredOttla, decoy: DecoyServer, tmp_path: Path
) -> None:
    """Settings of CVE-2023-25194, CVE-2024-31141, CVE-2025-27817, CVE-2025-27818 and CVE-2025-27819.

    Login modules, config providers and token URLs that were set remotely had a node or a worker read files and connect
    to hosts, and execute the responses.
    """
    file = tmp_path / "secret.properties"
    file.write_text(f"password={CONTENT}\n")
    mechanisms, admin, reported = offers(secured.ports["LOGIN"]), RawClient(secured.port), []
    for broker in ("1", ""):
        for name, value in named(decoy.port, file).items():
            row = incremental_alter_configs.AlterConfigsResource(
                4, broker, [incremental_alter_configs.AlterableConfig(name, 0, value)]
            )
            answer = admin.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([row])
            )
            reported.append((answer.responses[0].error_code, answer.responses[0].error_message or ""))
    assert {code for code, _ in reported} == {0, 42}, "some are kept, some refused"
    # A change of the stores lets the listener load all of its settings again.
    again = [incremental_alter_configs.AlterableConfig("listener.name.mutual.ssl.keystore.location", 0, files.server)]
    again.append(
        incremental_alter_configs.AlterableConfig("listener.name.mutual.ssl.truststore.location", 0, files.truststore)
    )
    admin.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(4, "1", again)]
        ),
    )
    wait_until_brokers_current(admin)
    assert offers(secured.ports["LOGIN"]) == mechanisms
    assert can_log_in(secured.ports["LOGIN"], "alice", "alice-secret")
    assert not can_log_in(secured.ports["LOGIN"], "mallory", "mallory-secret")
    wait_until(lambda: accepts_certificate(files, secured.ports["MUTUAL"], files.client))
    assert not accepts_certificate(files, secured.ports["MUTUAL"], None)
    assert not accepts_certificate(files, secured.ports["MUTUAL"], files.untrusted)
    shown = [
        admin.call(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(4, x)], True),
        )
        for x in ("1", "")
    ]
    log = secured.log.read_text()
    assert CONTENT not in f"{reported}{shown}{log}"
    assert "mallory-secret" not in f"{reported}{shown}{log}"
    assert decoy.came == 0
    socket.create_connection(("127.0.0.1", decoy.port)).close()
    wait_until(lambda: decoy.came == 1)  # a connection would have been counted


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SecurityFiles:
    return SecurityFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(files: SecurityFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    process = SecuredOttla(files, tmp_path_factory.mktemp("ottla") / "data")
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()
