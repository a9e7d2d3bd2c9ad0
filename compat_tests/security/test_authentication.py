"""Authentication of the same clients with the same settings by Ottla and Apache Kafka."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError

import ottla
from compat_tests.security.java_login import log_in_by_java
from compat_tests.security.secure_listeners import (
    KafkaWithListeners,
    ListenerCertificates,
    OttlaWithListeners,
    listener_settings,
)
from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import OTTLA
from compat_tests.support.raw_client import wait_until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = {"LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL", "PLAINTEXT": "PLAINTEXT"}
PROTOCOLS["CONTROLLER"] = "PLAINTEXT"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecurityFiles(ListenerCertificates):
    """Certificates, and the settings that name them."""

    def settings(self, ports: Mapping[str, int], **more: str) -> dict[str, str]:
        """Return the settings of a broker: the same for both kinds of node."""
        out = {
            **listener_settings(ports, PROTOCOLS),
            **self.store_settings(),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L",
            **more,
        }
        for listener in ("login", "both"):
            out[f"listener.name.{listener}.plain.sasl.jaas.config"] = f'{PLAIN} required user_alice="alice-secret";'
            for mechanism in MECHANISMS[1:]:
                out[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{SCRAM} required;"
        return out


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SecurityFiles:
    return SecurityFiles(tmp_path_factory.mktemp("tls"))


class SecuredOttla(OttlaWithListeners):
    """``ottla serve`` with these settings."""

    def __init__(self, files: SecurityFiles, data_dir: Path, **more: str) -> None:
        super().__init__(data_dir, PROTOCOLS, partial(files.settings, **more))


class SecuredKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, files: SecurityFiles, data_dir: Path) -> None:
        super().__init__(data_dir, PROTOCOLS, files.settings)


def add_alice(bootstrap: str) -> None:
    """Add the user by Kafka's own tool."""
    for mechanism in MECHANISMS[1:]:
        command = ["java", "-cp", classpath(), "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter"]
        config = f"{mechanism}=[iterations=8192,password=alice-secret]"
        command += ["--entity-type", "users", "--entity-name", "alice", "--add-config", config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(files: SecurityFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    jars("kafka")
    process = SecuredOttla(files, tmp_path_factory.mktemp("ottla") / "data")
    with process:
        add_alice(process.bootstrap)
        yield process
    log = process.log.read_text()
    assert "Traceback" not in log, log
    assert "alice-secret" not in log


def client(files: SecurityFiles, listener: str, host: str = "localhost", **more: str) -> dict[str, str]:
    """Return the settings of a Java client without the port."""
    out = {"security.protocol": PROTOCOLS[listener], "listener": listener, "host": host}
    if PROTOCOLS[listener].endswith("SSL"):
        out.update({"ssl.truststore.type": "PEM", "ssl.truststore.location": files.truststore})
    return out | {key.replace("_", "."): value for key, value in more.items()}


def login(
    files: SecurityFiles, listener: str, mechanism: str, user: str = "alice", password: str = "alice-secret"
) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    jaas = f'{module} required username="{user}" password="{password}";'
    return client(files, listener, sasl_mechanism=mechanism, sasl_jaas_config=jaas)


def cells(files: SecurityFiles) -> dict[str, dict[str, str]]:
    """Return the logins by name."""
    out = {}
    for mechanism in MECHANISMS:
        out[f"{mechanism} with TLS"] = login(files, "BOTH", mechanism)
        out[f"{mechanism} wrong password"] = login(files, "BOTH", mechanism, password="wrong")
        out[f"{mechanism} unknown user"] = login(files, "BOTH", mechanism, user="nobody")
        out[f"{mechanism} in plain text"] = login(files, "LOGIN", mechanism)  # SHA-256 is not enabled there
    wrong_ca = {"ssl.truststore.location": files.other}
    out["wrong authority"] = client(files, "TLS") | wrong_ca
    out["wrong authority with a login"] = login(files, "BOTH", "PLAIN") | wrong_ca
    out["wrong host name"] = client(files, "TLS", host="127.0.0.1")
    out["host names not looked at"] = client(files, "TLS", host="127.0.0.1", ssl_endpoint_identification_algorithm="")
    out["TLS"] = client(files, "TLS")
    out["no certificate"] = client(files, "MUTUAL")
    out["a certificate"] = client(files, "MUTUAL", ssl_keystore_type="PEM", ssl_keystore_location=files.client)
    outsider = {"ssl_keystore_type": "PEM", "ssl_keystore_location": files.untrusted}
    out["a certificate of somebody else's authority"] = client(files, "MUTUAL", **outsider)
    out["a login where none is asked for"] = login(files, "LOGIN", "PLAIN") | {"listener": "PLAINTEXT"}
    return out


def placed(files: SecurityFiles, ports: dict[str, int]) -> dict[str, dict[str, str]]:
    """Return the cells with the addresses of a node's listeners."""
    out = {}
    for name, values in cells(files).items():
        own = dict(values)
        out[name] = {"bootstrap.servers": f"{own.pop('host')}:{ports[own.pop('listener')]}", **own}
    return out


def error_class(text: str) -> str:
    """Return the class of an error, with its message where Kafka's comes from the broker."""
    kind, _, _ = text.partition(": ")
    return text if kind == "SaslAuthenticationException" else kind


def test_java_client_login_results_equal_kafka(files: SecurityFiles, secured: SecuredOttla, tmp_path: Path) -> None:
    ours = log_in_by_java(placed(files, secured.ports), tmp_path / "ours")
    with SecuredKafka(files, tmp_path / "kafka") as kafka:
        add_alice(kafka.bootstrap)
        theirs = log_in_by_java(placed(files, kafka.ports), tmp_path / "theirs")
    assert {name: error_class(x) for name, x in ours.items()} == {name: error_class(x) for name, x in theirs.items()}
    assert sum(x == "in" for x in ours.values()) == 8, ours


def librdkafka(files: SecurityFiles, secured: SecuredOttla, listener: str, **more: Any) -> dict[str, Any]:
    conf = {
        "bootstrap.servers": f"localhost:{secured.ports[listener]}",
        "security.protocol": PROTOCOLS[listener],
        "ssl.ca.location": files.truststore,
        "log_level": 0,
    }
    return conf | {key.replace("_", "."): value for key, value in more.items()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_with_right_password_logs_in_and_produces(
    files: SecurityFiles, secured: SecuredOttla, mechanism: str, topic: str
) -> None:
    conf = librdkafka(
        files, secured, "BOTH", sasl_mechanism=mechanism, sasl_username="alice", sasl_password="alice-secret"
    )
    producer, reported = Producer(conf), []
    for number in range(100):
        producer.produce(topic, str(number).encode() * 1000, on_delivery=lambda error, message: reported.append(error))
    assert producer.flush(120) == 0
    assert reported == [None] * 100


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_with_wrong_password_gets_authentication_error(
    files: SecurityFiles, secured: SecuredOttla, mechanism: str
) -> None:
    reported: list[str] = []
    conf = librdkafka(files, secured, "BOTH", sasl_mechanism=mechanism, sasl_username="alice", sasl_password="x")
    producer = Producer(conf | {"error_cb": lambda error: reported.append(error.name())})
    wait_until(lambda: producer.poll(0.1) or "_AUTHENTICATION" in reported)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_with_right_password_logs_in_and_produces(
    files: SecurityFiles, secured: SecuredOttla, mechanism: str, topic: str
) -> None:
    conf = {
        "bootstrap_servers": f"localhost:{secured.ports['BOTH']}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": files.truststore,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }
    producer = KafkaProducer(**conf, sasl_plain_password="alice-secret")
    assert producer.send(topic, b"x").get(120).offset == 0
    producer.close()
    with pytest.raises(KafkaError):
        KafkaProducer(**conf, sasl_plain_password="wrong", bootstrap_timeout_ms=3000)


def test_describe_user_scram_credentials_returns_users_of_kafka_configs_tool(secured: SecuredOttla) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    found = admin.describe_user_scram_credentials(["alice"])["alice"].result()
    assert [(str(x.mechanism), x.iterations) for x in found.scram_credential_infos] == [
        ("ScramMechanism.SCRAM_SHA_256", 8192),
        ("ScramMechanism.SCRAM_SHA_512", 8192),
    ]


def test_ottla_user_sets_lists_and_removes_scram_users(
    secured: SecuredOttla, files: SecurityFiles, tmp_path: Path
) -> None:
    def user(*arguments: str, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        command = [OTTLA, "user", *arguments, "--bootstrap", more.pop("bootstrap", secured.bootstrap)]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    assert user("set", "bob", "--password-file", "-", text="bob-secret\n").returncode == 0
    settings = tmp_path / "client.properties"
    own = login(files, "BOTH", "SCRAM-SHA-512", "bob", "bob-secret")
    settings.write_text("".join(f"{k}={v}\n" for k, v in own.items() if k not in ("host", "listener")))
    there = f"localhost:{secured.ports['BOTH']}"
    listed = user("list", "bob", "--command-config", str(settings), bootstrap=there)
    assert "SCRAM-SHA-512" in listed.stdout, listed.stderr
    assert user("remove", "bob").returncode == 0
    refused = user("list", "--command-config", str(settings), bootstrap=there)
    assert refused.returncode == 1
    assert "Authentication failed as bob" in refused.stderr
    assert "bob-secret" not in refused.stderr


def test_listener_with_jks_keystore_of_keytool_serves_tls(files: SecurityFiles, tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    make = ["keytool", "-genkeypair", "-alias", "a", "-keyalg", "EC", "-dname", "CN=localhost", "-storetype", "JKS"]
    make += [
        "-keystore",
        str(store),
        "-storepass",
        "store-secret",
        "-keypass",
        "key-secret",
        "-ext",
        "SAN=DNS:localhost",
    ]
    subprocess.run(make, check=True, capture_output=True)
    show = ["keytool", "-exportcert", "-rfc", "-alias", "a", "-keystore", str(store), "-storepass", "store-secret"]
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(subprocess.run(show, check=True, capture_output=True, text=True).stdout)
    own = {"ssl.keystore.type": "JKS", "ssl.keystore.location": str(store), "ssl.keystore.password": "store-secret"}
    with SecuredOttla(files, tmp_path / "data", **own, **{"ssl.key.password": "key-secret"}) as process:
        conf = librdkafka(files, process, "TLS") | {"ssl.ca.location": str(trusted)}
        assert AdminClient(conf).list_topics(timeout=120).brokers
    assert "secret" not in process.log.read_text()


def test_serve_secure_creates_certificates_and_client_configurations(tmp_path: Path) -> None:
    data, command = tmp_path / "data", [OTTLA, "serve", "--secure", "--listen", "127.0.0.1:0"]
    reported: list[Any] = []
    for times in (1, 2):  # the second start finds the files of the first
        with subprocess.Popen([*command, "--data-dir", str(data)], stdout=subprocess.PIPE, text=True) as node:
            assert node.stdout is not None
            output = [node.stdout.readline() for _ in range(6)]
            assert "Kafka Server started" in output[0]
            assert [str(data) in line for line in output[2:]] == [True] * 4
            conf = json.loads((data / "secure-confluent.json").read_text())
            producer = Producer(conf)
            producer.produce("t", b"x", on_delivery=lambda error, message: reported.append(error))
            producer.flush(60)
            node.terminate()
            assert reported == [None] * times
    assert {x.name for x in data.glob("secure*") if x.stat().st_mode & 0o077} == set()


@pytest.mark.parametrize("requested", [{"tls": True}, {"sasl": "PLAIN"}, {"tls": True, "sasl": "SCRAM-SHA-256"}])
def test_embedded_broker_client_config_of_secured_listener_connects(requested: dict[str, Any]) -> None:
    with ottla.Broker(**requested) as broker:
        assert AdminClient(broker.client_config("confluent")).list_topics(timeout=120).brokers
        producer = KafkaProducer(**broker.client_config("kafka-python"))
        assert producer.send("t", b"x").get(120).offset == 0
        producer.close()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(timeout=1)


def test_tls_listener_on_plain_text_request_closes_connection(secured: SecuredOttla) -> None:
    with socket.create_connection(("localhost", secured.ports["TLS"]), 5) as sock:
        sock.settimeout(20)  # a node that waits for more bytes waits for longer
        sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        with suppress(ConnectionError):
            assert sock.recv(100)[:1] in (b"", b"\x15"), "nothing, or a TLS alert"
