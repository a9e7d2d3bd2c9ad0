"""Three nodes that authenticate to each other with short-lived tokens, and a command that fetches a token."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.security.test_security_cluster import NODES, SecureCluster, SecureClusterNode
from compat_tests.support.processes import OTTLA
from compat_tests.support.raw_client import wait_until
from ottla.client.oauthbearer import CALLBACK_HANDLER_KEY, CALLBACK_HANDLERS, TOKEN_ENDPOINT_KEY

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule required;"
VALIDATOR = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
LASTS_S = 6
CREDENTIALS = "sasl.oauthbearer.client.credentials.client."


def token(name: str) -> str:
    """Return an unsigned token."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": name, "iat": now, "exp": now + LASTS_S})
    return ".".join(urlsafe_b64encode(json.dumps(x).encode()).decode().rstrip("=") for x in parts) + "."


class OauthbearerCluster(SecureCluster):
    """Cluster whose brokers and controllers use tokens between them; clients use a password."""

    def settings(self, node: int) -> dict[str, str]:
        out = super().settings(node)
        for name in ("internal", "controller"):
            out = {key: value for key, value in out.items() if not key.startswith(f"listener.name.{name}.")}
            prefix = f"listener.name.{name}."
            out[prefix + "sasl.enabled.mechanisms"] = "OAUTHBEARER"
            out[prefix + "oauthbearer.sasl.jaas.config"] = MODULE
            out[prefix + "oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
            out[prefix + "oauthbearer." + CALLBACK_HANDLER_KEY] = CALLBACK_HANDLERS[0]
        own = {
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        }
        return {**out, **own, TOKEN_ENDPOINT_KEY: f"file://{self.where}/token"}

    def refresh(self) -> None:
        """Replace the token file of the nodes atomically."""
        (self.where / "token.new").write_text(token("node"))
        (self.where / "token.new").rename(self.where / "token")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OauthbearerCluster]:
    cluster = OauthbearerCluster(tmp_path)
    cluster.format()
    cluster.refresh()
    stop = threading.Event()

    def keep_fresh() -> None:
        while not stop.wait(1):
            cluster.refresh()

    keeper = threading.Thread(target=keep_fresh)
    keeper.start()
    try:
        with ExitStack() as stack:
            nodes = [stack.enter_context(SecureClusterNode(cluster, node)) for node in NODES]
            wait_until(lambda: all(node._answers() for node in nodes))
            yield cluster
    finally:
        stop.set()
        keeper.join()
    for node in nodes:
        log = node.log.read_text()
        assert "Traceback" not in log, log
        assert "eyJhbGciOiAibm9uZSJ9" not in log  # the first characters of each token


def test_nodes_with_expiring_tokens_stay_in_sync(cluster: OauthbearerCluster) -> None:
    admin = AdminClient(cluster.client)
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result()
    producer, acknowledged, failed = Producer(cluster.client | {"acks": "all"}), [0], list[Any]()

    def on_delivery(error: Any, message: Any) -> None:
        if error:
            failed.append(error)
        acknowledged[0] += 1

    ends = time.monotonic() + 2.5 * LASTS_S
    count = 0
    while time.monotonic() < ends:
        producer.produce("t", b"x", on_delivery=on_delivery)
        count += 1
        producer.poll(0.02)
    assert producer.flush(120) == 0
    assert failed == []
    assert acknowledged == [count]
    topic = admin.list_topics("t", timeout=300).topics["t"]
    wait_until(
        lambda: all(len(p.isrs) == 3 for p in admin.list_topics("t", timeout=300).topics["t"].partitions.values())
    )
    assert len(topic.partitions) == 6


class TokenEndpointHandler(BaseHTTPRequestHandler):
    """Token endpoint that checks the client secret."""

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        knows = self.headers["Authorization"] == "Basic bWU6bXktc2VjcmV0" and form == b"grant_type=client_credentials"
        body = json.dumps({"access_token": token("me")}).encode() if knows else b"{}"
        self.send_response(200 if knows else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log no request."""


def test_ottla_command_fetches_token_from_endpoint_and_logs_in(cluster: OauthbearerCluster, tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), TokenEndpointHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    outcomes = {}
    for secret in ("my-secret", "wrong-secret"):
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.location={cluster.authority.truststore.location}\n"
            f"sasl.mechanism=OAUTHBEARER\nsasl.jaas.config={MODULE}\n{CALLBACK_HANDLER_KEY}={CALLBACK_HANDLERS[0]}\n"
            f"{TOKEN_ENDPOINT_KEY}=http://127.0.0.1:{server.server_port}/token\n"
            f"{CREDENTIALS}id=me\n{CREDENTIALS}secret={secret}\n"
        )
        command = [OTTLA, "topic", "list", "--bootstrap", f"localhost:{cluster.internal[0]}"]
        outcomes[secret] = subprocess.run(
            [*command, "--command-config", str(config)], capture_output=True, text=True, check=False
        )
    server.shutdown()
    server.server_close()
    assert outcomes["my-secret"].returncode == 0, outcomes["my-secret"].stderr
    assert outcomes["wrong-secret"].returncode == 1
    assert "status 401" in outcomes["wrong-secret"].stderr
    assert "secret" not in outcomes["wrong-secret"].stderr
