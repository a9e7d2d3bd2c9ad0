"""What stands before the handlers where there is an authorizer: the table of `operations`, carried out.

A request that may not be at all is refused here. Of one that names things, what may not be is taken out before the
handler sees it, and gets its rows behind those the handler gave.

Source: ``AuthHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ottla.broker.requests.error_responses import build_error_response_steps
from ottla.broker.security.authz.authorization_rules import (
    BROKER_RULES,
    CONTROLLER_RULES,
    DENIAL_ERRORS,
    AuthorizationRule,
    RequestRule,
    ResourceRule,
)
from ottla.broker.security.authz.mixed_resource_rules import REQUEST_SPLITTERS, RequestSplitter, hide_configs
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.steps import find_duplicates_steps
from ottla.jobs.time_slice import Job, TimeSlice
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode


class AuthorizableRequest(Protocol):
    """A request on its way: the dispatcher's `RequestContext`."""

    version: int
    time_slice: TimeSlice

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata."""

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether who asks may do something."""


A = TypeVar("A", bound=AuthorizableRequest)
_ApiRules = tuple[ApiKey, tuple[RequestRule, ...], list[ResourceRule], tuple[str, RequestSplitter] | None]
AuthorizedHandler = Callable[[A, Any], Any]
"""A handler: gives an answer, or something that is waited for."""


def rules_of(key: ApiKey, *, at_controller: bool) -> tuple[AuthorizationRule, ...]:
    """What a request needs."""
    return (CONTROLLER_RULES if at_controller else BROKER_RULES).get(key, ())


def needs_no_authorization(key: ApiKey, *, at_controller: bool) -> bool:
    """Whether nothing stands before a handler: those of Produce and Fetch look themselves."""
    return _api_rules(key, at_controller=at_controller) is None


def authorize_and_handle(asking: A, request: Any, handler: AuthorizedHandler[A], *, at_controller: bool) -> Any:
    """Handle a request as far as who asks may; gives what a handler gives."""
    before = _api_rules(request.SPEC.key, at_controller=at_controller)
    if before is None:
        return handler(asking, request)
    key, wholes, rows, special = before
    for need in wholes:
        code = _denial_error(asking, request, need)
        if code is not None:
            text = None if code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED else _denial_message(key, need.operation)
            return asking.time_slice.start(build_error_response_steps(request, asking.version, code, text))
    if not rows and special is None:
        return handler(asking, request)
    return asking.time_slice.start(_handle_by_resource(asking, request, handler, rows, special))


@cache
def _api_rules(number: int, *, at_controller: bool) -> _ApiRules | None:
    """What stands before an API's handler; None where nothing does."""
    key = ApiKey(number)
    needs = rules_of(key, at_controller=at_controller)
    wholes = tuple(x for x in needs if isinstance(x, RequestRule))
    rows = [x for x in needs if isinstance(x, ResourceRule)]
    special = REQUEST_SPLITTERS.get(key)
    return (key, wholes, rows, special) if wholes or rows or special is not None else None


def _denial_message(key: ApiKey, operation: AclOperation) -> str:
    return f"Request {key.name} needs {operation.name} permission."


def _denial_error(asking: AuthorizableRequest, request: Any, need: RequestRule) -> ErrorCode | None:
    """How a request is refused that lacks what it needs."""
    name = CLUSTER_NAME if need.field is None else getattr(request, need.field)
    return None if asking.may(need.operation, need.resource, name) else DENIAL_ERRORS[need.resource]


def _handle_by_resource(
    asking: A,
    request: Any,
    handler: AuthorizedHandler[A],
    needs: list[ResourceRule],
    special: tuple[str, RequestSplitter] | None,
) -> Job[Any]:
    answered, refused = "", list[Any]()
    for need in needs:
        answered = need.response_list
        request, refused = yield from _split_request(asking, request, need)
    if special is not None:
        answered = special[0]
        request, refused = yield from special[1](asking, request)
    answer = handler(asking, request)
    if isinstance(answer, Awaitable):
        return _add_denied_later(asking, answer, answered, refused)
    if isinstance(answer, Message):
        yield from _add_denied(asking, answer, answered, refused)
    return answer


async def _add_denied_later(
    asking: AuthorizableRequest, waited: Awaitable[Any], answered: str, refused: list[Any]
) -> Any:
    answer = await waited
    if isinstance(answer, Message):
        await asking.time_slice.run(_add_denied(asking, answer, answered, refused))
    return answer


def _add_denied(asking: AuthorizableRequest, answer: Message, answered: str, refused: list[Any]) -> Job[None]:
    """Put the refused rows behind the others; an answer that is an error as a whole stays as it is."""
    if getattr(answer, "error_code", 0):
        return
    rows = getattr(answer, answered)
    if type(answer) is response_class(ApiKey.CREATE_TOPICS):
        yield from hide_configs(asking, rows)
    for row in refused:
        rows.append(row)
        yield


def _split_request(asking: AuthorizableRequest, request: Any, need: ResourceRule) -> Job[tuple[Any, list[Any]]]:
    """What is left of a request, and the rows for what is not."""
    if need.cluster_operation is not None and asking.may(need.cluster_operation, ResourceType.CLUSTER):
        return request, []
    row_class = _sibling_class(request, need.row_class)
    part_class = _sibling_class(request, need.partition_class) if need.partition_class else None
    code, topic_names = DENIAL_ERRORS[need.resource], asking.image.topic_names
    rows = getattr(request, need.request_list)
    twice = (yield from find_duplicates_steps(x.name for x in rows)) if need.rejects_duplicates else set()
    left: list[Any] = []
    refused: dict[Any, Any] = {}
    for asked in rows:
        yield
        name = asked if isinstance(asked, str) else _topic_name(asked, topic_names, asking.version, need)
        if name is None or name in twice or asking.may(need.operation, need.resource, name):
            left.append(asked)
            continue
        row = _denied_row(row_class, asked, name, code, tells_why=need.has_message)
        if part_class is None:
            refused[name] = row
            continue
        assert need.partition_list is not None
        for part in getattr(asked, need.partition_list):
            row.partitions.append(_denied_partition(part_class, part, code))
            yield
        refused[len(refused)] = row
    return (replace(request, **{need.request_list: left}) if refused else request), list(refused.values())


def _topic_name(asked: Any, topic_names: Mapping[bytes, str], version: int, need: ResourceRule) -> str | None:
    """How a topic is called; None where its id says nothing here, which the handler tells."""
    if need.names_topics_by_id and version >= 10:
        return topic_names.get(asked.topic_id)
    name: str = asked.topic if hasattr(asked, "topic") else asked.name
    return name


def _denied_row(row_class: Any, asked: Any, name: str, code: ErrorCode, *, tells_why: bool) -> Any:
    row = row_class()
    for field in ("name", "topic", "topic_id"):
        if hasattr(row, field) and hasattr(asked, field):
            setattr(row, field, getattr(asked, field))
    if hasattr(row, "group_id"):
        row.group_id = name
    if hasattr(row, "error_code"):
        row.error_code = code
        if hasattr(row, "error_message"):
            row.error_message = "Authorization failed." if tells_why else None
    return row


def _denied_partition(part_class: Any, asked: Any, code: ErrorCode) -> Any:
    """A partition's row; the request has numbers, or rows that have them."""
    row = part_class(error_code=code)
    field = "partition_index" if hasattr(row, "partition_index") else "partition"
    number = asked if isinstance(asked, int) else getattr(asked, field)
    setattr(row, field, number)
    if hasattr(row, "low_watermark"):
        row.low_watermark = -1
    if hasattr(row, "error_message"):
        row.error_message = code.text
    return row


def _sibling_class(request: Any, name: str) -> Any:
    """A class out of the module of a request."""
    return getattr(sys.modules[type(request).__module__], name)
