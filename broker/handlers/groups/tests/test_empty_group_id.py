"""Empty group id in each API, compared with a Kafka 4.3.1 node (C-109, C-164)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.broker.tests.handler_fixture import resolve
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat as consumer
from ottla.wire.messages import heartbeat, join_group, leave_group, offset_delete, sync_group
from ottla.wire.messages import share_group_heartbeat as share
from ottla.wire.messages import streams_group_heartbeat as streams


@pytest.mark.parametrize(
    ("key", "request_", "code"),
    [
        (ApiKey.JOIN_GROUP, join_group.JoinGroupRequest("", 10_000, 10_000), ErrorCode.INVALID_GROUP_ID),
        (ApiKey.SYNC_GROUP, sync_group.SyncGroupRequest("", member_id="m"), ErrorCode.INVALID_GROUP_ID),
        (ApiKey.HEARTBEAT, heartbeat.HeartbeatRequest("", 1, "m"), ErrorCode.INVALID_GROUP_ID),
        (
            ApiKey.LEAVE_GROUP,
            leave_group.LeaveGroupRequest("", members=[leave_group.MemberIdentity("m")]),
            ErrorCode.INVALID_GROUP_ID,
        ),
        (ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest("", []), ErrorCode.INVALID_GROUP_ID),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer.ConsumerGroupHeartbeatRequest("", "m"), ErrorCode.INVALID_REQUEST),
        (ApiKey.SHARE_GROUP_HEARTBEAT, share.ShareGroupHeartbeatRequest("", "m"), ErrorCode.INVALID_REQUEST),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, streams.StreamsGroupHeartbeatRequest("", "m"), ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda x: x.name if isinstance(x, ApiKey) else "",
)
def test_empty_group_id_returns_error_code_of_kafka(key: ApiKey, request_: Any, code: ErrorCode) -> None:
    node, answers = GroupCoordinatorNode(), []
    features = {"group.version": 1, "share.version": 1, "streams.version": 1}
    node.fixture.hosted.image = replace(node.fixture.hosted.image, features=features)

    async def scenario() -> None:
        answers.append(await resolve(node.ask(key, 0 if key is ApiKey.STREAMS_GROUP_HEARTBEAT else 1, request_)))

    run(node, scenario)
    assert answers[0].error_code == code
