"""Member of a consumer group: after the loss of its membership it joins again, and does not fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.cli.common import connect_to_coordinator
from ottla.cli.records.group_member import LEAVE, GroupMember
from ottla.cli.tests.command_runs import run_command
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.xdist_group(__name__)
AT = ("t", 0)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker() as broker:
        assert run_command("topic", "create", "t", "-b", broker.bootstrap_servers).status == 0
        yield broker.bootstrap_servers


async def join(member: GroupMember) -> None:
    while AT not in member.assigned:
        await member.heartbeat(force=True)


async def end_membership(client: ClusterClient, group: str, member: GroupMember) -> None:
    """Remove the member from its group, as the end of its session does."""
    channel = await connect_to_coordinator(client, group)
    await channel.call(ConsumerGroupHeartbeatRequest(group, member._member_id, LEAVE))


async def commit_after_the_end_of_the_session(bootstrap: str) -> None:
    client = ClusterClient(BlockingEnv(), bootstrap, timeout_s=30)
    try:
        member = GroupMember(client, "lost", ["t"])
        assert not await member.commit({AT: 1})
        await join(member)
        assert await member.commit({AT: 1})
        await end_membership(client, "lost", member)
        assert not await member.commit({AT: 2})
        assert await member.heartbeat()  # due at once
        assert not member.assigned
        await join(member)
        assert await member.committed() == {AT: 1}
        assert await member.commit({AT: 3})
        assert await member.committed() == {AT: 3}
        assert not await member.commit({("none", 0): 1})
    finally:
        client.close()


def test_member_joins_again_after_the_end_of_its_session(node: str) -> None:
    run_blocking(commit_after_the_end_of_the_session(node))
