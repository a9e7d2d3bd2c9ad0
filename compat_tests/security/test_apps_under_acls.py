"""Kafka Streams and Kafka Connect with exactly the ACLs that Kafka's documentation lists.

Both authenticate and use transactions: words are counted under exactly_once_v2, and the lines of a file are copied with
exactly-once source support. Without the ACLs each fails with an authorization error. Each node takes half a minute, so
the tests run only with ``OTTLA_APPS=all``, which includes Apache Kafka.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.test_connect import NAME, TOPIC, CommittedReader, worker
from compat_tests.cluster.test_three_nodes import wait_for
from compat_tests.groups.test_streams_groups import LINES, SETTINGS, WordCountProcess, until_counted, write
from compat_tests.security.secure_listeners import KafkaWithListeners, OttlaWithListeners, listener_settings
from compat_tests.support.jars import jars
from compat_tests.support.processes import NodeProcess
from compat_tests.support.raw_client import RawClient
from ottla.controller.metadata.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest

pytestmark = [
    pytest.mark.xdist_group(__name__),
    pytest.mark.skipif(
        os.environ.get("OTTLA_APPS") != "all", reason="two minutes: only where OTTLA_APPS=all asks for it"
    ),
]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AclRule = tuple[ResourceType, str, PatternType, AclOperation]
COUNTING: list[AclRule] = [
    (ResourceType.TOPIC, "words", PatternType.PREFIXED, AclOperation.ALL),
    (ResourceType.GROUP, "words", PatternType.PREFIXED, AclOperation.ALL),
    (ResourceType.TRANSACTIONAL_ID, "words", PatternType.PREFIXED, AclOperation.ALL),
    (ResourceType.TOPIC, "lines", PatternType.LITERAL, AclOperation.READ),
    (ResourceType.TOPIC, "counts", PatternType.LITERAL, AclOperation.WRITE),
]
"""ACLs of an application named words."""
WORKING: list[AclRule] = [
    *(
        (ResourceType.TOPIC, "connect-", PatternType.PREFIXED, o)
        for o in (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
    ),
    (ResourceType.GROUP, "connect", PatternType.LITERAL, AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, "connect-cluster-connect", PatternType.LITERAL, AclOperation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, f"connect-{NAME}-", PatternType.PREFIXED, AclOperation.WRITE),
]
"""ACLs of a worker of the group connect."""
CARRYING: list[AclRule] = [(ResourceType.TOPIC, TOPIC, PatternType.LITERAL, AclOperation.WRITE)]
"""ACLs of its connector."""
CARRIED = [f"line {number}" for number in range(3)]
"""Few lines: a producer without permission retries for a second for each."""

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "APPS": "SASL_PLAINTEXT"}


def settings(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the settings of a node: anonymous clients are super users, applications need ACLs."""
    return {
        **listener_settings(ports, PROTOCOLS, "127.0.0.1"),
        "listener.name.apps.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.apps.plain.sasl.jaas.config": f'{PLAIN} user_words="a-secret" user_worker="a-secret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.replication.factor": "1",
        **{key.replace("_", "."): value for key, value in SETTINGS.items()},
    }


class GuardedOttla(OttlaWithListeners):
    """``ottla serve`` with these settings."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, PROTOCOLS, settings)


class GuardedKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, PROTOCOLS, settings)


KINDS: dict[str, Any] = {"ottla": GuardedOttla, "kafka": GuardedKafka}


def allow(node: NodeProcess, member: str, rules: list[AclRule]) -> None:
    """Add ACLs for a principal."""
    made = [AclCreation(r, name, p, f"User:{member}", "*", o, AclPermissionType.ALLOW) for r, name, p, o in rules]
    client = RawClient(node.port)
    answer = client.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(made))
    client.close()
    assert {row.error_code for row in answer.results} == {0}


def logged_in(client: str) -> dict[str, str]:
    """Return the settings of a Java client."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="{client}" password="a-secret";',
    }


@pytest.fixture(params=KINDS)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    jars("kafka")
    with KINDS[request.param](tmp_path / "data") as process:
        yield process
    if request.param == "ottla":
        assert "Traceback" not in process.log.read_text(), process.log.read_text()


def make(node: NodeProcess, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        made.result(120)


def test_streams_with_documented_acls_counts_words(node: Any, tmp_path: Path) -> None:
    jars("streams")
    make(node, "lines", "counts")
    write(node.bootstrap)
    more = tmp_path / "more.properties"
    more.write_text("".join(f"{key}={value}\n" for key, value in logged_in("words").items()))
    at = f"127.0.0.1:{node.ports['APPS']}"
    allow(node, "words", COUNTING[1:])
    refused = WordCountProcess(at, tmp_path / "refused", str(more))
    try:
        wait_for(lambda: "STATE ERROR" in refused.log.read_text(), 60)
    finally:
        refused.kill()
    assert "AuthorizationException" in refused.log.read_text()
    allow(node, "words", COUNTING[:1])
    application = WordCountProcess(at, tmp_path / "words", str(more))
    try:
        wanted = dict(Counter(word for line in LINES for word in line.split()))
        assert until_counted(node.bootstrap, wanted) == wanted, application.log.read_text()[-3000:]
    finally:
        application.kill()
    assert "AuthorizationException" not in application.log.read_text()


def test_connect_with_documented_acls_copies_file(node: Any, tmp_path: Path) -> None:
    jars("connect")
    make(node, TOPIC)
    allow(node, "worker", WORKING)
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in CARRIED))
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": TOPIC,
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    prefixes = ("", "producer.", "consumer.", "admin.")
    more = "".join(f"{prefix}{key}={value}\n" for prefix in prefixes for key, value in logged_in("worker").items())
    tail = CommittedReader(node.bootstrap, TOPIC)
    with worker(tmp_path, f"127.0.0.1:{node.ports['APPS']}", 1, more) as connect:
        wait_for(lambda: connect.request("PUT", f"/connectors/{NAME}/config", connector), 90)

        def failed() -> Any:
            status = connect.request("GET", f"/connectors/{NAME}/status") or {"tasks": []}
            return next((task["trace"] for task in status["tasks"] if task["state"] == "FAILED"), None)

        assert "TopicAuthorizationException" in wait_for(failed, 60)
        allow(node, "worker", CARRYING)
        connect.request("POST", f"/connectors/{NAME}/restart?includeTasks=true&onlyFailed=true")
        wait_for(lambda: tail.read() >= len(CARRIED), 60)
    tail.close()
    assert [value.decode() for _, value in tail.seen if value is not None] == CARRIED
