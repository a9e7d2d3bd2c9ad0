"""Marked secrets of every kind go through a node; afterwards they occur only where they must.

Every secret is searched for as it is, in base64, in hexadecimal and percent-encoded: in the log (with a detailed audit
log), in responses and output of commands, in described settings, in the metrics, in the list of processes, and in the
data directory, as the tools print it and as its bytes are.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import urllib.request
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import wait_until
from ottla.runtime.tests.certificate_authority import CertificateAuthority

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MARK = "pl4nted"
"""Part of every secret, so that a secret without a search of its own is found as well."""
PASSWORD, WRONG, SCRAMMED, KEY, OTHER_KEY, ISSUING, BEARER, DYNAMIC = (
    f"{MARK}-{name}-7f3a" for name in ("plain", "wrong", "scram", "key", "otherkey", "issuing", "bearer", "dynamic")
)


def forms(secret: bytes) -> set[bytes]:
    """Return the encodings of a secret."""
    out = {secret, secret.hex().encode(), secret.hex().upper().encode(), quote(secret).encode()}
    for lead in range(3):  # base64 inside a longer text: without the characters that depend on its neighbours
        text = b64encode(b"\0" * lead + secret)
        out.add(text[4 if lead else 0 : len(text) - 4])
    return {x for x in out if len(x) >= 8}


class SecretWatcher:
    """Secrets, and the places where any of them occurs."""

    def __init__(self) -> None:
        self.secrets: list[bytes] = [x.encode() for x in (PASSWORD, WRONG, SCRAMMED, KEY, OTHER_KEY, ISSUING, BEARER)]
        self.found: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch_processes)

    def look(self, where: str, text: bytes | str, *allowed: str) -> None:
        """Record the secrets in a text; ``allowed`` has the expected ones."""
        raw = text.encode() if isinstance(text, str) else text
        for secret in self.secrets:
            if secret.decode("latin-1") not in allowed and any(x in raw for x in forms(secret)):
                self.found.append(f"{secret[:24]!r} in {where}")
        if not allowed and MARK.encode() in raw:
            self.found.append(f"something planted in {where}")

    def _watch_processes(self) -> None:
        while not self._stop.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.look(f"{entry}", entry.read_bytes())

    def __enter__(self) -> SecretWatcher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


class OttlaWithMarkedSecrets(OttlaProcess):
    """Node with secrets of every kind in its settings."""

    def __init__(self, where: Path, **more: str) -> None:
        super().__init__(where / "data")
        self.ports = {"PLAINTEXT": self.port, "IN": free_port(), "BOTH": free_port()}
        self.metrics = free_port()
        self.authority = CertificateAuthority(where / "ca")
        keys = self.authority.issue("server", "/CN=localhost")
        self.file = where / "node.properties"
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        tokens = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
        settings = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,BOTH:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "oauthbearer.sasl.server.callback.handler.class": f"{tokens}.OAuthBearerUnsecuredValidatorCallbackHandler",
            "ssl.keystore.location": self._encrypted(Path(keys.location)),
            "ssl.key.password": KEY,
            "ssl.truststore.location": self.authority.truststore.location,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:scram",
            "delegation.token.secret.key": ISSUING,
            "ottla.audit.log": "DEBUG",
            "ottla.metrics.listener": f"127.0.0.1:{self.metrics}",
            **more,
        }
        for listener in ("in", "both"):
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
                f'{PLAIN} required username="n" password="{PASSWORD}" user_plain="{PASSWORD}";'
            )
        self.file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _encrypted(self, both: Path) -> str:
        """Encrypt the key with a password, which openssl reads from its standard input."""
        out = both.with_suffix(".pem8")
        make = ["openssl", "pkcs8", "-topk8", "-in", str(both), "-passout", "stdin", "-v2", "aes-256-cbc"]
        made = subprocess.run(make, input=KEY + "\n", capture_output=True, text=True, check=True)
        text = both.read_text()
        out.write_text(made.stdout + text[text.index("-----BEGIN CERTIFICATE") :])
        return str(out)

    def command(self) -> list[str]:
        return [OTTLA, "serve", "--config", str(self.file), "--data-dir", str(self.data_dir)]


def run(watched: SecretWatcher, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command and search its output."""
    done = subprocess.run([OTTLA, *arguments], input=text, capture_output=True, text=True, check=False)
    watched.look(f"what ottla {arguments[0]} says", done.stdout + done.stderr)
    return done


def asking(where: Path, mechanism: str, user: str, password: str, more: str = "") -> Path:
    """Return a file with the settings of a client."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    jaas = f'{module} required username="{user}" password="{password}"{more};'
    where.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return where


def log_in(node: OttlaWithMarkedSecrets, watched: SecretWatcher, where: Path) -> None:
    """Log in with right and wrong secrets by every mechanism."""
    there = f"127.0.0.1:{node.ports['IN']}"
    add = ["user", "set", "scram", "--password-file", "-", "--bootstrap", node.bootstrap]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert run(watched, *add, "--mechanism", mechanism, text=SCRAMMED + "\n").returncode == 0
    for mechanism, user, password in (
        ("PLAIN", "plain", PASSWORD),
        ("SCRAM-SHA-256", "scram", SCRAMMED),
        ("SCRAM-SHA-512", "scram", SCRAMMED),
    ):
        for shown in (password, WRONG):
            config = asking(where / "client", mechanism, user, shown)
            done = run(watched, "topic", "list", "--bootstrap", there, "--command-config", str(config))
            assert done.returncode == (shown == WRONG)
    reported: list[Any] = []
    bearer = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (BEARER, 1e12)}
    producer = Producer(
        {"bootstrap.servers": there, "security.protocol": "SASL_PLAINTEXT", "log_level": 0, **bearer}
        | {"error_cb": lambda error: reported.append(str(error))}
    )
    wait_until(lambda: producer.poll(0.1) or reported)
    with_tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": node.authority.truststore.location}
    way = {"sasl.mechanism": "PLAIN", "sasl.username": "plain", "sasl.password": PASSWORD, "log_level": 0}
    AdminClient({"bootstrap.servers": f"localhost:{node.ports['BOTH']}", **with_tls, **way}).list_topics(timeout=300)
    watched.look("what confluent-kafka is told", str(reported))


def tokens(node: OttlaWithMarkedSecrets, watched: SecretWatcher, where: Path) -> None:
    """Create and use a delegation token; its hmac is a secret from its creation on."""
    there = ["--bootstrap", f"127.0.0.1:{node.ports['IN']}", "--command-config"]
    scram, token = asking(where / "scram", "SCRAM-SHA-512", "scram", SCRAMMED), where / "token"
    assert run(watched, "token", "create", "--config-out", str(token), *there, str(scram)).returncode == 0
    hmac = token.read_text().partition(' password="')[2].partition('"')[0]
    watched.secrets += [hmac.encode(), b64decode(hmac)]
    assert run(watched, "topic", "list", *there, str(token)).returncode == 0
    assert run(watched, "token", "list", *there, str(scram)).stdout
    assert run(watched, "token", "renew", "--hmac-file", "-", *there, str(scram), text=hmac + "\n").returncode == 0
    wrong = asking(where / "wrong", "SCRAM-SHA-512", "x" * 22, hmac, ' tokenauth="true"')
    assert run(watched, "topic", "list", *there, str(wrong)).returncode == 1


def look_at_settings(node: OttlaWithMarkedSecrets, watched: SecretWatcher) -> None:
    """Search the described settings, static and dynamic, with and without listener prefix."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    names = ("listener.name.both.ssl.key.password", "listener.name.both.ssl.keystore.password")
    change = AlterConfigOpType.SET
    entries = [ConfigEntry(x, DYNAMIC, incremental_operation=change) for x in names[1:]]
    resource = ConfigResource("broker", "1", incremental_configs=entries)
    with suppress(Exception):  # allowed or not: a value must not be returned
        admin.incremental_alter_configs([resource])[resource].result(120)
    for broker in ("1", ""):
        requested = ConfigResource("broker", broker)
        with suppress(Exception):
            rows = admin.describe_configs([requested])[requested].result(120)
            text = "\n".join(f"{x.name}={x.value} {x.synonyms}" for x in rows.values())
            watched.look(f"settings of broker {broker!r}", text)
            assert not rows or broker == "" or rows["delegation.token.secret.key"].value is None
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics}/metrics", timeout=300) as page:
        watched.look("the page of metrics", page.read())
    run(watched, "doctor", str(node.file))


def look_at_files(node: OttlaWithMarkedSecrets, watched: SecretWatcher) -> None:
    """Search the data directory and the output of the tools. Dynamic settings must be in it, as in Kafka."""
    for file in node.data_dir.rglob("*"):
        if file.is_file():
            watched.look(f"{file.name}", file.read_bytes().replace(DYNAMIC.encode(), b""))
            if "__cluster_metadata" in str(file) and file.suffix in (".log", ".checkpoint"):
                run(watched, "dump", str(file))
    run(watched, "log", "verify", str(node.data_dir))


def test_secrets_occur_in_no_log_response_or_output(tmp_path: Path) -> None:
    """Secrets in the log (CVE-2026-33558: a verbose log contained secrets)."""
    with SecretWatcher() as watched:
        with OttlaWithMarkedSecrets(tmp_path) as node:
            log_in(node, watched, tmp_path)
            tokens(node, watched, tmp_path)
            look_at_settings(node, watched)
        look_at_files(node, watched)
        log = node.log.read_bytes()
        watched.look("the log", log)
    assert watched.found == []
    assert b"Principal = User:scram is Authenticated" in log  # the log was verbose
    assert b"by a delegation token" in log
    assert b"is Allowed operation" in log


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.key.password": OTHER_KEY},
        {"listener.name.both.ssl.key.password": OTHER_KEY},
        {"listener.name.in.plain.sasl.jaas.config": f'{PLAIN} required user_plain="{PASSWORD}'},
        {"listener.name.in.plain.sasl.jaas.config": f"{PLAIN} required password={PASSWORD} {PASSWORD};"},
        {"delegation.token.max.lifetime.ms": "0"},
        {"delegation.token.secret.keys": ISSUING},
    ],
    ids=["key", "a listener's key", "half a line", "no line", "another setting", "a name misspelt"],
)
def test_failed_start_logs_no_secret(tmp_path: Path, wrong: dict[str, str]) -> None:
    watched = SecretWatcher()
    node = OttlaWithMarkedSecrets(tmp_path)
    later = [f"{key}={value}\n" for key, value in wrong.items()]
    lines = [x for x in node.file.read_text().splitlines(True) if x.partition("=")[0] not in wrong]
    node.file.write_text("".join([*lines, *later]))
    with suppress(RuntimeError), node:
        pass
    log = node.log.read_text()
    assert log
    watched.look("the log", log)
    run(watched, "doctor", str(node.file))
    assert watched.found == []


def test_secret_watcher_finds_each_encoding_of_a_secret() -> None:
    """Search itself: each encoding of a secret is found."""
    for text in (
        f"password={PASSWORD}",
        PASSWORD.encode().hex(),
        b64encode(b"\0plain\0" + PASSWORD.encode()).decode(),
        b64encode(b"x" + PASSWORD.encode() + b"y").decode(),
        quote(PASSWORD, safe=""),
        f"{MARK} of somebody",
    ):
        watched = SecretWatcher()
        watched.look("a text", text)
        assert watched.found, text
    watched = SecretWatcher()
    watched.look("a text", "nothing of it")
    assert watched.found == []


@pytest.mark.parametrize("secret", [PASSWORD, KEY, ISSUING])
def test_node_process_at_exit_searches_its_log_for_secrets(tmp_path: Path, secret: str) -> None:
    """Node of any test (CVE-2026-33558): the secrets of its settings are not in its log."""
    node = OttlaWithMarkedSecrets(tmp_path)
    node.log.write_text("2026-11-23 INFO ottla.server started\n")
    node.__exit__()
    node.log.write_text(f"2026-11-23 INFO ottla.server listening with {secret}\n")
    with pytest.raises(AssertionError, match="secrets in"):
        node.__exit__()
