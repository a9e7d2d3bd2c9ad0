"""DeleteShareGroupOffsets (92), v0: delete the offsets and the share state of topics of an empty share group.

Behaviour: the persister's state is deleted first; an unknown topic, or one without state, is
UNKNOWN_TOPIC_OR_PARTITION. A group with members is NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND, each for the
whole request. Deviation: a topic that occurs twice in the request is returned once.

Source: ``KafkaApis.handleDeleteShareGroupOffsetsRequest``, ``GroupCoordinatorService.deleteShareGroupOffsets``
(apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.share.offset_changes import ShareOffsetsToDelete, complete_offset_deletion, delete_offsets
from ottla.broker.groups.state_machine import ShareGroupCommand
from ottla.broker.handlers.item_results import distinct, wait_for_success
from ottla.broker.handlers.share.share_acknowledgements import is_served
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

TopicResponse = DeleteShareGroupOffsetsResponseTopic
NO_OFFSETS = "There is no offset information to delete."


@with_error_response
def handle(context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> ResponseJob:
    """Delete the share state of the topics in the persister, then their offsets in the group coordinator.

    A topic whose state cannot be deleted has an error and stays marked for deletion; a repeated request tries again.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    response, topics, unknown = DeleteShareGroupOffsetsResponse(), list[str](), list[str]()
    for name in distinct(topic.topic_name for topic in request.topics):
        yield None
        if name is None:
            continue
        if context.may(AclOperation.READ, ResourceType.TOPIC, name):
            (topics if name in context.image.topics else unknown).append(name)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.responses.append(TopicResponse(name, ZERO_UUID, code, code.text))
    groups, group_id = context.services.groups, request.group_id
    rule = partial(delete_offsets, group_id=group_id, topics=topics)
    answer = yield from wait_for_success(groups.submit(group_id, lambda own: ShareGroupCommand(own, rule)))
    assert isinstance(answer, ShareOffsetsToDelete)
    for name in (*answer.unknown_topics, *unknown):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = NO_OFFSETS if name in context.image.topics else code.text
        response.responses.append(TopicResponse(name, ZERO_UUID, code, text))
        yield None
    gone = set()
    for topic_id, numbers in answer.partitions.items():
        failure = yield context.services.share_partition_manager.delete_state(group_id, {topic_id: sorted(numbers)})
        name = context.image.topic_names.get(topic_id, "")
        if failure is None:
            gone.add(topic_id)
            response.responses.append(TopicResponse(name, topic_id, ErrorCode.NONE, None))
        else:
            response.responses.append(TopicResponse(name, topic_id, failure.code, failure.code.text))
    if gone:
        done = partial(complete_offset_deletion, group_id=group_id, topics=frozenset(gone))
        yield groups.submit(group_id, lambda own: ShareGroupCommand(own, done)).wait()
    return response
