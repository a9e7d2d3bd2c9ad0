"""What a refusal looks like: every API has its own place for errors, at the top of the answer or in each row.

One table for whoever answers a whole request with one error: a controller that is not the active one, a limit that has
passed, a principal that may not. Messages load with their API, so the rows' classes are found beside the request's.

Source: the ``getErrorResponse`` of each request class in ``clients``, ``ApiError.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

from ottla.jobs.steps import run_to_end
from ottla.jobs.time_slice import Job
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode


class _RowLayout(NamedTuple):
    """An answer with a row for each row of the request, and the error in every one of them."""

    request_list: str
    response_list: str
    row_class: str
    copied_fields: tuple[str, ...]
    """What a row repeats of what was asked."""


_RESOURCE_LAYOUT = _RowLayout(
    "resources", "responses", "AlterConfigsResourceResponse", ("resource_type", "resource_name")
)
_ROW_LAYOUTS: dict[ApiKey, _RowLayout] = {
    ApiKey.CREATE_TOPICS: _RowLayout("topics", "topics", "CreatableTopicResult", ("name",)),
    ApiKey.CREATE_PARTITIONS: _RowLayout("topics", "results", "CreatePartitionsTopicResult", ("name",)),
    ApiKey.ALTER_CONFIGS: _RESOURCE_LAYOUT,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCE_LAYOUT,
    ApiKey.CREATE_ACLS: _RowLayout("creations", "results", "AclCreationResult", ()),
    ApiKey.DELETE_ACLS: _RowLayout("filters", "filter_results", "DeleteAclsFilterResult", ()),
}
_STANDARD_MESSAGE_APIS = frozenset(
    {
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.CONTROLLER_REGISTRATION,
    }
)
"""Their message is the error's own, whatever else there would be to say."""


def build_error_response_steps(request: Any, version: int, code: ErrorCode, message: str | None = None) -> Job[Message]:
    """The answer that refuses a whole request, row by row where the API has its errors there."""
    key = ApiKey(request.SPEC.key)
    answer: Any = response_class(key)()
    rows = _ROW_LAYOUTS.get(key)
    if rows is not None:
        kind = _sibling_class(request, rows.row_class)
        out = getattr(answer, rows.response_list)
        for asked in getattr(request, rows.request_list):
            row = kind(error_code=code, error_message=message)
            for name in rows.copied_fields:
                setattr(row, name, getattr(asked, name))
            out.append(row)
            yield
        return answer  # type: ignore[no-any-return]
    if hasattr(answer, "error_code") and (key is not ApiKey.ELECT_LEADERS or version > 0):
        answer.error_code = code
    if hasattr(answer, "error_message"):
        answer.error_message = code.text if key in _STANDARD_MESSAGE_APIS else message
    special = _SPECIAL_LAYOUTS.get(key)
    if special is not None:
        yield from special(request, answer, code, message, version)
    return answer  # type: ignore[no-any-return]


def build_error_response(request: Any, version: int, code: ErrorCode, message: str | None = None) -> Message:
    """As `build_error_response_steps`, at once."""
    return run_to_end(build_error_response_steps(request, version, code, message))


def _sibling_class(request: Any, name: str) -> Any:
    """A class out of the module of a request."""
    return getattr(sys.modules[type(request).__module__], name)


def _fill_delete_topics(request: Any, answer: Any, code: ErrorCode, message: str | None, version: int) -> Job[None]:
    """By name before version 6, by name or id from then on; without a message."""
    kind = _sibling_class(request, "DeletableTopicResult")
    for name in request.topic_names:
        answer.responses.append(kind(name, error_code=code))
        yield
    for topic in request.topics:
        answer.responses.append(kind(topic.name, topic.topic_id, code))
        yield


def _fill_elect_leaders(request: Any, answer: Any, code: ErrorCode, message: str | None, version: int) -> Job[None]:
    """One row a partition; none where all partitions were meant."""
    topic_row, row = _sibling_class(request, "ReplicaElectionResult"), _sibling_class(request, "PartitionResult")
    for topic in request.topic_partitions or ():
        told = topic_row(topic.topic)
        answer.replica_election_results.append(told)
        for number in topic.partitions:
            told.partition_result.append(row(number, code, message))
            yield
        yield


def _fill_alter_reassignments(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """At the top, and again in each row."""
    topic_row, row = (
        _sibling_class(request, "ReassignableTopicResponse"),
        _sibling_class(request, "ReassignablePartitionResponse"),
    )
    for topic in request.topics:
        told = topic_row(topic.name)
        answer.responses.append(told)
        for part in topic.partitions:
            told.partitions.append(row(part.partition_index, code, message))
            yield
        yield


def _fill_list_reassignments(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """At the top; what was asked for is repeated empty."""
    topic_row, row = (
        _sibling_class(request, "OngoingTopicReassignment"),
        _sibling_class(request, "OngoingPartitionReassignment"),
    )
    for topic in request.topics or ():
        told = topic_row(topic.name)
        answer.topics.append(told)
        for number in topic.partition_indexes:
            told.partitions.append(row(number))
            yield
        yield


def _fill_alter_scram_credentials(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """One row a user."""
    kind = _sibling_class(request, "AlterUserScramCredentialsResult")
    told: set[str] = set()
    for x in chain(request.deletions, request.upsertions):
        if x.name not in told:
            told.add(x.name)
            answer.results.append(kind(x.name, code, message))
        yield


def _fill_describe_scram_credentials(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """At the top, and once for each user who was asked for, without a name."""
    kind = _sibling_class(request, "DescribeUserScramCredentialsResult")
    for _ in request.users or ():
        answer.results.append(kind("", code, message))
        yield


def _fill_alter_log_dirs(request: Any, answer: Any, code: ErrorCode, message: str | None, version: int) -> Job[None]:
    """One row a partition, in the order of the request."""
    topic_row, row = (
        _sibling_class(request, "AlterReplicaLogDirTopicResult"),
        _sibling_class(request, "AlterReplicaLogDirPartitionResult"),
    )
    for directory in request.dirs:
        for topic in directory.topics:
            told = topic_row(topic.name)
            answer.results.append(told)
            for number in topic.partitions:
                told.partitions.append(row(number, code))
                yield
            yield
        yield


def _fill_join_group(request: Any, answer: Any, code: ErrorCode, message: str | None, version: int) -> Job[None]:
    """A protocol name that is empty before version 7, and null from then on."""
    answer.protocol_name = None if version >= 7 else ""
    yield


def _fill_offset_commit(request: Any, answer: Any, code: ErrorCode, message: str | None, version: int) -> Job[None]:
    """One row a partition."""
    topic_row, row = (
        _sibling_class(request, "OffsetCommitResponseTopic"),
        _sibling_class(request, "OffsetCommitResponsePartition"),
    )
    for topic in request.topics:
        told = topic_row(topic.name, topic.topic_id)
        answer.topics.append(told)
        for part in topic.partitions:
            told.partitions.append(row(part.partition_index, code))
            yield
        yield


def _fill_alter_client_quotas(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """One row an entity."""
    row = _sibling_class(request, "AlterClientQuotasResponseEntryData")
    named = _sibling_class(request, "AlterClientQuotasResponseEntityData")
    for entry in request.entries:
        told: list[Any] = []
        answer.entries.append(row(code, message, told))
        for x in entry.entity:
            told.append(named(x.entity_type, x.entity_name))
            yield
        yield


def _fill_describe_client_quotas(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """Null, and not an empty list."""
    answer.entries = None
    yield


def _fill_create_delegation_token(
    request: Any, answer: Any, code: ErrorCode, message: str | None, version: int
) -> Job[None]:
    """Nobody's, and without a time."""
    answer.principal_type, answer.principal_name = "User", "ANONYMOUS"
    if version >= 3:
        answer.token_requester_principal_type, answer.token_requester_principal_name = "User", "ANONYMOUS"
    answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = -1
    yield


_SPECIAL_LAYOUTS: dict[ApiKey, Callable[[Any, Any, ErrorCode, str | None, int], Job[None]]] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _fill_alter_scram_credentials,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _fill_describe_scram_credentials,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _fill_alter_log_dirs,
    ApiKey.CREATE_DELEGATION_TOKEN: _fill_create_delegation_token,
    ApiKey.DELETE_TOPICS: _fill_delete_topics,
    ApiKey.ALTER_CLIENT_QUOTAS: _fill_alter_client_quotas,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _fill_describe_client_quotas,
    ApiKey.JOIN_GROUP: _fill_join_group,
    ApiKey.OFFSET_COMMIT: _fill_offset_commit,
    ApiKey.ELECT_LEADERS: _fill_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _fill_alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _fill_list_reassignments,
}


def contains_error_steps(answer: Message, code: ErrorCode) -> Job[bool]:
    """Whether an answer that came over the wire says an error anywhere, at the top or in a row."""
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            if value == code:
                return True
        elif isinstance(value, list):
            if value and isinstance(value[0], Message):
                for row in value:
                    if (yield from contains_error_steps(row, code)):
                        return True
                    yield
        elif isinstance(value, Message) and (yield from contains_error_steps(value, code)):
            return True
    return False


def contains_error(answer: Message, code: ErrorCode) -> bool:
    """As `contains_error_steps`, at once: for answers that are never long."""
    return run_to_end(contains_error_steps(answer, code))
