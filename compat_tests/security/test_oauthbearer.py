"""OAUTHBEARER: the same tokens, keys and settings on Ottla and on Apache Kafka; stock clients log in.

``OTTLA_TOKENS=all`` tests every kind of token by the Java client, else each second one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat_tests.security.java_login import log_in_by_java
from compat_tests.security.secure_listeners import KafkaWithListeners, OttlaWithListeners, listener_settings
from compat_tests.support.jars import jars
from compat_tests.support.raw_client import wait_until
from ottla.broker.security.authn.tests.token_issuer import EC, OTHER, RSA, build_jwks, build_unsigned_token, sign_token

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
PREFIX = "listener.name.tokens.oauthbearer."
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "TOKENS": "SASL_PLAINTEXT"}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", lasts_s: float = 3600, **more: Any) -> str:
    """Return a token that is valid except for the given arguments."""
    now = int(time.time())
    claims = {"sub": "alice", "iss": "https://idp", "aud": "kafka", "iat": now - 60, "exp": now + lasts_s, **more}
    return sign_token({k: v for k, v in claims.items() if v is not None}, key, algorithm, kid)


def cells() -> dict[str, str]:
    """Return tokens by their defect."""
    now = int(time.time())
    out = {
        "good": token(),
        "by another key of the set": token(EC, "ES256", "ec"),
        "PS256": token(algorithm="PS256"),
        "no key's name": token(kid=None),
        "two audiences": token(aud=["x", "kafka"]),
        "a little late": token(lasts_s=-2),
        "expired": token(lasts_s=-5000),
        "not good yet": token(nbf=now + 3000),
        "from the future": token(iat=now + 3000),
        "another audience": token(aud="x"),
        "no audience": token(aud=None),
        "another issuer": token(iss="https://elsewhere"),
        "nobody": token(sub=None),
        "no beginning": token(iat=None),
        "a scope twice": token(scope=["a", "a"]),
        "somebody else's key": token(OTHER),
        "an unknown key": token(OTHER, kid="none"),
        "the wrong kind of key": token(EC, "ES256", "rsa"),
        "unsigned": build_unsigned_token({"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 60}),
    }
    return dict(list(out.items())[:: 1 if os.environ.get("OTTLA_TOKENS") == "all" else 2])


def settings(where: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Return the settings of a broker: the same for both kinds of node."""
    return {
        **listener_settings(ports, PROTOCOLS),
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
        f"{PREFIX}sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{where}/keys.json",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "sasl.oauthbearer.clock.skew.seconds": "600",  # so that a token that expires soon is still valid on arrival
    }


class OauthbearerOttla(OttlaWithListeners):
    """``ottla serve`` with a listener that accepts tokens."""

    def __init__(self, where: Path, data_dir: Path) -> None:
        super().__init__(data_dir, PROTOCOLS, partial(settings, where))


class OauthbearerKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, where: Path, data_dir: Path) -> None:
        self.where = where
        super().__init__(data_dir, PROTOCOLS, partial(settings, where))

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"{ALLOWED}file://{self.where}/keys.json", *rest]


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("keys")
    (out / "keys.json").write_bytes(build_jwks(("rsa", RSA), ("ec", EC)))
    return out


@pytest.fixture(scope="module")
def taking(where: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OauthbearerOttla]:
    process = OauthbearerOttla(where, tmp_path_factory.mktemp("ottla") / "data")
    with process:
        yield process
    log = process.log.read_text()
    assert "Traceback" not in log, log
    assert "eyJ" not in log, "a token in the log"


def run_java_client(port: int, where: Path) -> dict[str, str]:
    """Return the result of each cell for the Java client, which reads its token from a file."""
    files = where.with_suffix(".tokens")
    files.mkdir()
    all_settings, urls = {}, []
    for number, (name, value) in enumerate(cells().items()):
        file = files / f"{number:02d}"
        file.write_text(value)
        urls.append(f"file://{file}")
        all_settings[name] = {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": urls[-1],
        }
    return log_in_by_java(all_settings, where, ALLOWED + ",".join(urls))


@pytest.mark.xdist_group(__name__)
def test_java_client_token_results_equal_kafka(where: Path, taking: OauthbearerOttla, tmp_path: Path) -> None:
    jars("kafka")
    ours = run_java_client(taking.ports["TOKENS"], tmp_path / "ours")
    with OauthbearerKafka(where, tmp_path / "kafka") as kafka:
        theirs = run_java_client(kafka.ports["TOKENS"], tmp_path / "theirs")
    assert ours == theirs
    assert sum(x == "in" for x in ours.values()) >= 3, ours


def librdkafka(taking: OauthbearerOttla, made: str, lasts_s: float = 3600) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{taking.ports['TOKENS']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (made, time.time() + lasts_s),
        "log_level": 0,
    }


def test_confluent_kafka_with_valid_token_logs_in_and_produces(taking: OauthbearerOttla, topic: str) -> None:
    producer, reported = Producer(librdkafka(taking, token())), []
    for number in range(100):
        producer.produce(topic, str(number).encode(), on_delivery=lambda error, message: reported.append(error))
    assert producer.flush(120) == 0
    assert reported == [None] * 100


def test_confluent_kafka_with_invalid_token_gets_authentication_error(taking: OauthbearerOttla) -> None:
    reported: list[str] = []
    producer = Producer(librdkafka(taking, token(OTHER)) | {"error_cb": lambda error: reported.append(error.name())})
    wait_until(lambda: producer.poll(0.1) or "_AUTHENTICATION" in reported)


def test_confluent_kafka_with_expiring_tokens_reauthenticates_and_continues(
    taking: OauthbearerOttla, topic: str
) -> None:
    """Re-authentication (KIP-368): tokens of five seconds, and records for twelve."""
    made: list[float] = []

    def fresh(_: str) -> tuple[str, float]:
        made.append(time.time())
        return token(lasts_s=5), time.time() + 5

    conf = librdkafka(taking, "") | {"oauth_cb": fresh}
    producer, reported = Producer(conf), []
    until_s = time.monotonic() + 12
    while time.monotonic() < until_s:
        producer.produce(topic, b"x", on_delivery=lambda error, message: reported.append(error))
        producer.poll(0.2)
    assert producer.flush(120) == 0
    assert reported == [None] * len(reported)
    assert len(made) >= 2


class StaticTokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Token provider with the interface that kafka-python expects."""

    def __init__(self, made: str) -> None:
        self._made = made

    def token(self) -> str:
        return self._made


def test_kafka_python_with_valid_token_logs_in_and_produces(taking: OauthbearerOttla, topic: str) -> None:
    conf = {
        "bootstrap_servers": f"localhost:{taking.ports['TOKENS']}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = KafkaProducer(**conf, sasl_oauth_token_provider=StaticTokenProvider(token()))
    assert producer.send(topic, b"x").get(120).offset == 0
    producer.close()
    bad = partial(KafkaProducer, **conf, bootstrap_timeout_ms=3000)
    with pytest.raises(KafkaError):
        bad(sasl_oauth_token_provider=StaticTokenProvider(token(OTHER)))


def test_oauthbearer_with_replaced_jwks_file_accepts_new_key(where: Path, taking: OauthbearerOttla) -> None:
    late = token(OTHER, kid="late")
    with pytest.raises(Exception, match="Local"):
        AdminClient(librdkafka(taking, late)).list_topics(timeout=2)
    before = (where / "keys.json").read_bytes()
    try:
        (where / "keys.json").write_bytes(build_jwks(("late", OTHER)))
        assert AdminClient(librdkafka(taking, late)).list_topics(timeout=120).brokers
    finally:
        (where / "keys.json").write_bytes(before)
