"""``ottla doctor``: files and directories in settings, and client configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.tests.command_runs import run_command
from ottla.log.java_properties import Property
from ottla.runtime.certificate_generator import generate_authority, generate_certificate
from ottla.tools.client_doctor import diagnose_client, is_client_config
from ottla.tools.doctor import DOUBTFUL, WRONG, ConfigFinding, parse_settings
from ottla.tools.named_files import diagnose_listener_stores, diagnose_paths

BROKER = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=SSL://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SSL:SSL
inter.broker.listener.name=SSL
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for name in ("one", "two"):
        authority = generate_authority()
        (folder / f"{name}.pem").write_text(generate_certificate(authority, ["localhost"]))
        (folder / f"{name}-ca.pem").write_text(authority.certificate)
        (folder / f"{name}.pem").chmod(0o600)
    key = "".join((folder / "one.pem").read_text().partition("-----BEGIN CERTIFICATE")[:1])
    certificate = "".join((folder / "two.pem").read_text().partition("-----BEGIN CERTIFICATE")[1:])
    (folder / "mixed.pem").write_text(key + certificate)
    (folder / "empty.pem").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    return folder


def settings(text: str) -> list[Property]:
    return parse_settings(text.encode())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("one.pem", None),
        ("mixed.pem", "they do not belong together"),
        ("empty.pem", "no usable key and certificate"),
    ],
)
def test_diagnose_listener_stores_loads_keystore(stores: Path, name: str, problem: str | None) -> None:
    found = diagnose_listener_stores(settings(f"{BROKER}ssl.keystore.type=PEM\nssl.keystore.location={stores}/{name}"))
    if problem is None:
        assert found == []
        return
    (only,) = found
    assert (only.lineno, only.key, only.severity) == (9, "ssl.keystore.location", WRONG)
    assert problem in only.text
    assert "listener SSL" in only.text


def test_diagnose_listener_stores_truststore_without_certificate_is_reported(stores: Path) -> None:
    own = f"listener.name.ssl.ssl.truststore.location={stores}/empty.pem\nlistener.name.ssl.ssl.truststore.type=PEM"
    found = diagnose_listener_stores(settings(f"{BROKER}ssl.keystore.location={stores}/one.pem\n{own}"))
    assert [(x.lineno, x.key) for x in found] == [(9, "listener.name.ssl.ssl.truststore.location")]
    assert "no certificate that can be read" in found[0].text


def test_diagnose_paths_reports_missing_and_unusable_paths(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f"""ssl.keystore.location={tmp_path}/nope.pem
listener.name.x.ssl.truststore.location={tmp_path}
log.dirs={tmp_path}/new/deep,{tmp_path}/file,{tmp_path}/file/below
ssl.truststore.location="""
    assert [(x.lineno, x.text) for x in diagnose_paths(settings(text))] == [
        (1, f"no such file: {tmp_path}/nope.pem"),
        (2, f"is a directory: {tmp_path}"),
        (3, f"is not a directory: {tmp_path}/file"),
        (3, f"cannot be created, {tmp_path}/file is not a directory: {tmp_path}/file/below"),
    ]


CLIENTS = [
    ("bootstrap.servers=localhost", 1, WRONG, "HOST:PORT expected: localhost"),
    ("bootstrap.servers=0.0.0.0:9092", 1, WRONG, "no address that a client can connect to"),
    ("security.protocol=TLS", 2, WRONG, "TLS"),
    ("sasl.mechanism=SCRAM-SHA-512", 2, DOUBTFUL, "security.protocol is PLAINTEXT, not SASL_SSL or SASL_PLAINTEXT"),
    ("ssl.endpoint.identification.algorithm=", 2, DOUBTFUL, "security.protocol is PLAINTEXT, not SSL or SASL_SSL"),
    ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", 2, WRONG, "sasl.jaas.config is missing"),
    ("security.protocol=SSL\nssl.truststore.location=/nope", 3, WRONG, "no such file: /nope"),
    ("sasl.username=a", 2, DOUBTFUL, "librdkafka; Java and Kafka's tools use sasl.jaas.config"),
    ("security.protocl=SSL", 2, DOUBTFUL, "did you mean security.protocol?"),
    ("request.timeout.ms=30s", 2, WRONG, "whole number without a unit expected: 30s"),
    ("enable.idempotence=true\nacks=1", 3, WRONG, "needs acks=all"),
    ("enable.idempotence=true\nmax.in.flight.requests.per.connection=6", 3, WRONG, "at most 5"),
]


@pytest.mark.parametrize(
    ("text", "number", "severity", "part"), CLIENTS, ids=[x[0].partition("\n")[0] for x in CLIENTS]
)
def test_diagnose_client_mistake_returns_finding_with_its_line(
    text: str, number: int, severity: str, part: str
) -> None:
    lines = settings(text if text.startswith("bootstrap") else f"bootstrap.servers=localhost:9092\n{text}")
    assert is_client_config(lines)
    mine = [x for x in diagnose_client(lines) if part in x.text]
    assert [(x.lineno, x.severity) for x in mine] == [(number, severity)], diagnose_client(lines)


def test_diagnose_client_valid_settings_return_no_finding(stores: Path) -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
    text = f"""bootstrap.servers=a:9092,[::1]:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={login}
ssl.truststore.type=PEM
ssl.truststore.location={stores}/one-ca.pem
linger.ms=5
acks=all
enable.idempotence=true"""
    assert diagnose_client(settings(text)) == []
    assert not is_client_config(settings("bootstrap.servers=a:1\nprocess.roles=broker"))


def test_diagnose_client_truststore_without_certificate_is_reported(stores: Path) -> None:
    text = f"bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.truststore.location={stores}/empty.pem"
    (only,) = diagnose_client(settings(text))
    assert only == ConfigFinding(3, "ssl.truststore.location", WRONG, only.text)
    assert "no certificate that can be read" in only.text


def test_doctor_reports_missing_keystore_and_client_settings(tmp_path: Path) -> None:
    server = tmp_path / "server.properties"
    server.write_text(f"{BROKER}ssl.keystore.location=/nope.jks\nssl.keystore.password=x\nlog.dirs={tmp_path}/d\n")
    server.chmod(0o600)
    done = run_command("doctor", str(server))
    assert (done.status, done.err) == (1, "")
    assert f"{server}:8: wrong: ssl.keystore.location: no such file: /nope.jks" in done.out.decode()
    client = tmp_path / "client.properties"
    client.write_text("bootstrap.servers=here:9092\n")
    assert run_command("doctor", str(client)).out.decode() == f"{client}: nothing wrong in 1 settings\n"
