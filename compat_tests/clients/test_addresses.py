"""Listener at all addresses, IPv4 and IPv6: addresses in responses to clients of either kind."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.metadata import MetadataRequest

MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class AnyHostClient(RawClient):
    """Client that connects to any host."""

    def __init__(self, host: str, port: int) -> None:
        self.sock = socket.create_connection((host, port), 10)
        self.sock.settimeout(self.timeout_s)
        self.number, self.pending_requests = 0, set()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    settings = {"offsets_topic_num_partitions": "1", "group_initial_rebalance_delay_ms": "0"}
    process = OttlaProcess(tmp_path_factory.mktemp("addresses") / "data", **settings)
    process.bootstrap = f"[::]:{process.port}"
    with process:
        yield process


@pytest.mark.parametrize(
    ("dialled", "local", "client_host"),
    [("127.0.0.1", "127.0.0.1", "/127.0.0.1"), ("::1", "::1", "/0:0:0:0:0:0:0:1")],
)
def test_responses_of_wildcard_listener_contain_address_of_the_connection(
    node: OttlaProcess, dialled: str, local: str, client_host: str
) -> None:
    client = AnyHostClient(dialled, node.port)
    group = f"group-of-{dialled}"
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    wait_until(lambda: not client.call(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code)
    assert client.call(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].host == local
    assert [row.host for row in client.call(ApiKey.METADATA, 12, MetadataRequest([])).brokers] == [local]
    assert [row.host for row in client.call(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers] == [local]

    join = JoinGroupRequest(group, 30_000, 30_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])
    wait_until(lambda: not client.call(ApiKey.JOIN_GROUP, 3, join).error_code)
    described = client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([group])).groups[0]
    assert {member.client_host for member in described.members} == {client_host}

    beat = ConsumerGroupHeartbeatRequest(
        f"{group}-2", MEMBER_ID, 0, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat).error_code == 0
    request = ConsumerGroupDescribeRequest([f"{group}-2"])
    members = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups[0].members
    assert [member.client_host for member in members] == [client_host]
    client.close()
