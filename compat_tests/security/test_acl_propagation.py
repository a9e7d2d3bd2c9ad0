"""ACL created or deleted at one of three nodes: time until each node applies it (printed with `pytest -s`)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from compat_tests.cluster.test_three_nodes import all_in_sync, combined_nodes, make_topic, running_nodes
from compat_tests.cluster.test_three_nodes import wait_for as within
from compat_tests.support.processes import NodeProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import create_acls, delete_acls, metadata

TOPIC, OTHER = 2, "127.0.0.2"
LITERAL, DENY, DESCRIBE = 3, 2, 8
ROUNDS = 6
SETTINGS = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""


def change(port: int, *, deny: bool) -> None:
    """Deny clients at other hosts the description of topic t, or delete the ACL."""
    client = RawClient(port)
    if deny:
        rule = create_acls.AclCreation(TOPIC, "t", LITERAL, "User:ANONYMOUS", OTHER, DESCRIBE, DENY)
        done = client.call(ApiKey.CREATE_ACLS, 3, create_acls.CreateAclsRequest([rule])).results
    else:
        filters = [delete_acls.DeleteAclsFilter(TOPIC, "t", LITERAL, "User:ANONYMOUS", OTHER, DESCRIBE, DENY)]
        done = client.call(ApiKey.DELETE_ACLS, 3, delete_acls.DeleteAclsRequest(filters)).filter_results
    assert [row.error_code for row in done] == [0]
    client.close()


def seen(client: RawClient) -> int:
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    return int(client.call(ApiKey.METADATA, 12, request).topics[0].error_code)


def seen_everywhere_s(nodes: Sequence[NodeProcess], at: int, *, deny: bool) -> list[float]:
    """Change the ACL at one node; return the time until each applies it, from the request on."""
    clients = [RawClient(node.port, source=OTHER) for node in nodes]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if deny else 0

    def seen_after_s(client: RawClient) -> float:
        wait_until(lambda: seen(client) == code, 0.001)
        return time.monotonic() - began_s

    with ThreadPoolExecutor() as threads:
        began_s = time.monotonic()
        each = [threads.submit(seen_after_s, client) for client in clients]
        change(nodes[at].port, deny=deny)
        out = [found.result() for found in each]
    for client in clients:
        client.close()
    return out


def test_acl_changed_at_one_node_is_applied_by_all_nodes(tmp_path: Path) -> None:
    nodes = combined_nodes(tmp_path)
    for node in nodes:
        node.file.write_text(node.file.read_text() + SETTINGS)
    took_s: list[float] = []
    with running_nodes(nodes):
        make_topic(nodes[0].bootstrap, "t", 1)
        for node in nodes:
            within(partial(all_in_sync, node.bootstrap, "t"))
        for number in range(ROUNDS):
            took_s += seen_everywhere_s(nodes, number // 2 % 3, deny=number % 2 == 0)
    print(f"rules seen at each node: median {statistics.median(took_s):.3f} s, worst {max(took_s):.3f} s")
