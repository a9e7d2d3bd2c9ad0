"""Forwarding of requests to the active controller, unchanged; the dispatch table lists the APIs.

CreateTopics (19), CreatePartitions (37), UpdateFeatures (57), ElectLeaders (43), AlterPartitionReassignments (45),
ListPartitionReassignments (46), UnregisterBroker (64), CreateAcls (30), DeleteAcls (31), AlterClientQuotas (49),
AlterUserScramCredentials (51), and those for the leader of the quorum: DescribeQuorum (55), AddRaftVoter (80),
RemoveRaftVoter (81). Handlers that first check a request use it, too. The response is returned once the changes are
committed. If the controller runs in this node, the broker has also applied them, so that new settings are in effect and
the partitions of a new topic are led here, unless there are many.

Source: ``ForwardingManager.scala``, ``ControllerApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.wire.codec.schema import Message


def handle(context: RequestContext, request: Message) -> ResponseJob:
    """Pass the request to the active controller, on another node in an Envelope (KIP-590); a job returns the response.

    It waits until the changes of the request are committed. An error of the forwarding, such as no response within
    60 s, is an error response.

    Raises:
        WireError: The controller does not support the API or version: the connection is closed.
        OSError: The metadata log of this node could not be written; the node stops.
    """
    return (yield context.services.controller_forwarder.forward(context, request))  # type: ignore[no-any-return]
