"""Subscriptions to very many topics, of members of consumer and share groups, processed in time slices.

A member's subscription is one record. Names that do not fit into a record are rejected before they are sorted, with the
error of the write that would fail.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.groups.java_collections.iteration_order import sort_strings_job
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError

_CHECKS_PER_STEP = 100


def check_subscription(context: RequestContext, group_id: str, names: list[str]) -> Generator[None, None, list[str]]:
    """Return the sorted distinct names as a `JavaSortedStrings`, if the member may describe all topics, as a job.

    ``group_id`` selects the partition of `__consumer_offsets` whose maximum record size applies.

    Raises:
        ProtocolError: TOPIC_AUTHORIZATION_FAILED; UNKNOWN_SERVER_ERROR if the names exceed the size of a record;
            NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    """
    if context.has_authorizer:
        yield from _check_authorized(context, names)
    try:
        found = yield from sort_strings_job(names, _max_record_bytes(context, group_id))
    except OverflowError:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    return cast("list[str]", found)  # has the interface of a list


def _check_authorized(context: RequestContext, names: list[str]) -> Generator[None, None, None]:
    for number, name in enumerate(names):
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if number % _CHECKS_PER_STEP == 0:
            yield


def _max_record_bytes(context: RequestContext, group_id: str) -> int:
    """Return the maximum size in bytes of a record in the group's ``__consumer_offsets`` partition.

    Raises:
        ProtocolError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
    """
    return context.services.groups.shard_for(group_id).replica.log.config.max_message_bytes
