"""Topics in responses of other brokers."""

from __future__ import annotations

from types import ModuleType

import pytest

from ottla.console.topic_permissions import hide_topics, may_send
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_share_group_offsets as asg
from ottla.wire.messages import consumer_group_describe as cgd
from ottla.wire.messages import describe_share_group_offsets as dsg
from ottla.wire.messages import share_group_describe as sgd
from ottla.wire.messages import streams_group_describe as stg


def is_open(topic: str) -> bool:
    return topic == "open"


def assignment(messages: ModuleType, *topics: str) -> object:
    return messages.Assignment([messages.TopicPartitions(topic_name=topic, partitions=[0]) for topic in topics])


@pytest.mark.parametrize("messages", [cgd, sgd])
def test_group_with_a_hidden_topic_is_refused_as_its_coordinator_does(messages: ModuleType) -> None:
    response_class = getattr(messages, f"{'Consumer' if messages is cgd else 'Share'}GroupDescribeResponse")
    groups = [
        messages.DescribedGroup(
            group_id=topics[-1],
            members=[messages.Member(assignment=assignment(messages, topic)) for topic in topics],
        )
        for topics in (("open",), ("open", "closed"))
    ]
    response = response_class(groups=groups)
    hide_topics(response, is_open)
    assert [group.error_code for group in response.groups] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (response.groups[1].group_id, response.groups[1].members) == ("closed", [])


def test_target_of_a_member_is_checked_as_its_assignment() -> None:
    member = cgd.Member(assignment=cgd.Assignment([]), target_assignment=assignment(cgd, "closed"))
    response = cgd.ConsumerGroupDescribeResponse(groups=[cgd.DescribedGroup(members=[member])])
    hide_topics(response, is_open)
    assert response.groups[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_topology_with_a_hidden_topic_is_refused() -> None:
    topologies = [stg.Topology(0, [stg.Subtopology(source_topics=[topic])]) for topic in ("open", "closed")]
    response = stg.StreamsGroupDescribeResponse(groups=[stg.DescribedGroup(topology=each) for each in topologies])
    hide_topics(response, is_open)
    assert [group.error_code for group in response.groups] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_share_offsets_in_a_hidden_topic_are_left_out_and_not_set() -> None:
    topics = [dsg.DescribeShareGroupOffsetsResponseTopic(topic_name=name) for name in ("open", "closed")]
    response = dsg.DescribeShareGroupOffsetsResponse(groups=[dsg.DescribeShareGroupOffsetsResponseGroup("g", topics)])
    hide_topics(response, is_open)
    assert [topic.topic_name for topic in response.groups[0].topics] == ["open"]
    for name in ("open", "closed"):
        request = asg.AlterShareGroupOffsetsRequest("g", [asg.AlterShareGroupOffsetsRequestTopic(name)])
        assert may_send(request, is_open) is is_open(name)
