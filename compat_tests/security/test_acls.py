"""ACLs by Kafka's own tool and their effect on clients, which are distinguished by their host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import OTTLA, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import create_topics, metadata

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ME, OTHER = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def node(data_dir: Path) -> Iterator[OttlaProcess]:
    settings = {"authorizer_class_name": STANDARD, "allow_everyone_if_no_acl_found": "true"}
    with OttlaProcess(data_dir, **settings) as process:
        yield process
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


def acl(node: OttlaProcess, *arguments: str) -> str:
    return java_tool("AclCommand", "--bootstrap-server", node.bootstrap, *arguments)


def seen(client: RawClient, *names: str) -> list[tuple[Any, int]]:
    request = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=n) for n in names] or None, allow_auto_topic_creation=False
    )
    return [(t.name, t.error_code) for t in client.call(ApiKey.METADATA, 12, request).topics]


def ottla_acl(node: OttlaProcess, *arguments: str) -> list[dict[str, str]]:
    done = subprocess.run(
        [OTTLA, "acl", *arguments, "-b", node.bootstrap, "-o", "json"], capture_output=True, text=True, check=True
    )
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def test_ottla_acl_and_kafka_acls_tool_list_acls_of_each_other(node: OttlaProcess) -> None:
    acl(node, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "a", "--allow-host", "10.0.0.1")
    ottla_acl(node, "add", "--deny", "User:b", "--operation", "write", "--group", "g", "--prefixed")
    ottla_acl(node, "add", "--allow", "User:ANONYMOUS", "--operation", "all", "--cluster")
    assert [(r["resource"], r["principal"], r["permission"]) for r in ottla_acl(node, "list")] == [
        ("topic", "User:a", "allow"),
        ("group", "User:b", "deny"),
        ("cluster", "User:ANONYMOUS", "allow"),
    ]
    assert "(principal=User:b, host=*, operation=WRITE, permissionType=DENY)" in acl(node, "--list")
    assert [r["name"] for r in ottla_acl(node, "remove", "--principal", "User:a")] == ["a"]
    assert [r["resource"] for r in ottla_acl(node, "list")] == ["group", "cluster"]


def test_acls_are_added_listed_applied_persisted_and_removed(node: OttlaProcess) -> None:
    me = RawClient(node.port)
    me.call(
        ApiKey.CREATE_TOPICS,
        7,
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic(n, 1, 1) for n in ("a", "b")], 9_000),
    )
    other = RawClient(node.port, source=OTHER)
    assert seen(other) == [("a", 0), ("b", 0)]  # no ACL exists yet
    anonymous = ["--allow-principal", "User:ANONYMOUS", "--operation", "all", "--topic", "*"]
    acl(node, "--add", *anonymous, "--allow-host", ME, "--cluster")
    acl(node, "--add", "--allow-principal", "User:*", "--operation", "Read", "--topic", "a")
    listed = acl(node, "--list")
    assert listed.count("permissionType=ALLOW") == 3
    assert "(principal=User:ANONYMOUS, host=127.0.0.1, operation=ALL, permissionType=ALLOW)" in listed
    assert seen(me) == [("a", 0), ("b", 0)]
    assert seen(other) == [("a", 0)]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert seen(other, "a", "b", "none") == [("a", 0), ("b", denied), ("none", denied)]
    new = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("c", 1, 1)], 9_000)
    assert other.call(ApiKey.CREATE_TOPICS, 7, new).topics[0].error_code == denied
    node.stop()
    node.start()
    other, me = RawClient(node.port, source=OTHER), RawClient(node.port)
    assert seen(other, "a", "b") == [("a", 0), ("b", denied)]
    acl(node, "--remove", "--force", "--topic", "a")
    assert seen(other, "a", "b") == [("a", denied), ("b", denied)]
    assert seen(me, "a", "b") == [("a", 0), ("b", 0)]
