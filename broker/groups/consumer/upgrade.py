"""A classic group becomes a consumer group when a member of the new protocol joins it.

Source: ``GroupMetadataManager.getOrMaybeCreateConsumerGroup`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.state import ConsumerGroup
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Group, GroupState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records as o


def upgraded(groups: ConsumerGroups, classic: Group, now_ms: int, fx: Fx) -> ConsumerGroup:
    """The group anew, as one of this kind.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: it stays what it is.
    """
    if classic.state is not GroupState.EMPTY:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.id} is not a consumer group.")
    fx.records.append(GroupRecord(o.GroupMetadataKey(classic.id), None))
    return ConsumerGroup(classic.id)
