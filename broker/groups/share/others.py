"""What members of other kinds of groups are told of a share group.

Source: ``GroupMetadataManager.classicGroupJoin``, ``getOrMaybeCreateConsumerGroup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.state import Call
from ottla.log.machine import Reply
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError

_REFUSALS = {
    ApiKey.JOIN_GROUP: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ErrorCode.GROUP_ID_NOT_FOUND,
}


def refuse(call: Call) -> Fx:
    """Nobody of another kind joins a share group, and none of them is a member."""
    code = _REFUSALS.get(ApiKey(call.request.SPEC.key), ErrorCode.UNKNOWN_MEMBER_ID)
    return Fx(replies=[Reply(call.ticket, ProtocolError(code))])
