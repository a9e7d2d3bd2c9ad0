"""Topic authorization of a console session for group requests that this node forwards to another coordinator.

The other coordinator authorizes this node, and so returns topics that the user of the session may not describe. They
are removed or refused here, as the coordinator would do for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from ottla.wire.messages.offset_fetch import OffsetFetchResponse
from ottla.wire.messages.share_group_describe import ShareGroupDescribeResponse
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeResponse

TopicCheck = Callable[[str], bool]
"""Returns whether the session is authorized for a topic."""
HIDDEN = "The group has topics that the session is not authorized to describe."


def may_send(request: Any, may_read: TopicCheck) -> bool:
    """Return False if a request to alter the offsets of a share group has a topic that the session may not read.

    True for every other request.
    """
    if isinstance(request, AlterShareGroupOffsetsRequest):
        return all(may_read(topic.topic_name) for topic in request.topics)
    return True


def hide_topics(response: Any, may_describe: TopicCheck) -> None:
    """Remove what the session may not describe from the response of a coordinator, in place.

    Topics are removed from offsets. A described group with such a topic becomes one with the error
    TOPIC_AUTHORIZATION_FAILED. Other responses are left unchanged.
    """
    if isinstance(response, OffsetFetchResponse):
        for group in response.groups:
            group.topics = [topic for topic in group.topics if may_describe(topic.name)]
    elif isinstance(response, DescribeShareGroupOffsetsResponse):
        for shared in response.groups:
            shared.topics = [topic for topic in shared.topics if may_describe(topic.topic_name)]
    elif isinstance(response, ConsumerGroupDescribeResponse | ShareGroupDescribeResponse):
        _refuse_groups(response, _assigned_topics, may_describe)
    elif isinstance(response, StreamsGroupDescribeResponse):
        _refuse_groups(response, _topology_topics, may_describe)


def _refuse_groups(response: Any, topics_of: Callable[[Any], Iterator[str]], may_describe: TopicCheck) -> None:
    described = type(response.groups[0]) if response.groups else None
    for number, group in enumerate(response.groups):
        if described is not None and not all(may_describe(topic) for topic in set(topics_of(group))):
            response.groups[number] = described(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN, group.group_id)


def _assigned_topics(group: Any) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                yield from (row.topic_name for row in assignment.topic_partitions)


def _topology_topics(group: Any) -> Iterator[str]:
    for row in () if group.topology is None else group.topology.subtopologies or ():
        yield from (*row.source_topics, *row.repartition_sink_topics)
        yield from (topic.name for topic in (*row.repartition_source_topics, *row.state_changelog_topics))
