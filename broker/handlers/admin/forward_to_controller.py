"""Requests the controller decides, handed on as they are: which ones they are stands in the dispatcher's table.

CreateTopics (19), CreatePartitions (37), UpdateFeatures (57), ElectLeaders (43), AlterPartitionReassignments (45),
ListPartitionReassignments (46), UnregisterBroker (64), and what the leader of the quorum answers: DescribeQuorum (55),
AddRaftVoter (80), RemoveRaftVoter (81). It leaves once what it
changed is committed and, where the controller is here, this node has applied it: new settings hold, and the partitions
of a topic are led here, unless there are many.

Source: ``ForwardingManager.scala``, ``ControllerApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.wire.codec.schema import Message


def handle(context: RequestContext, request: Message) -> ResponseJob:
    """Ask the controller."""
    return (yield context.services.controller_forwarder.forward(context, request))  # type: ignore[no-any-return]
