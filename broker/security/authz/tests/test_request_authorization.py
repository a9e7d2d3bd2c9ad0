"""Permissions of every request: refused as a whole, refused by rows, or passed to the handler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.api_spec import ApiSpec, AuthorizationRule, ErrorResults, Permission, RequestRule, ResourceRule
from ottla.broker.dispatch.api_registry import API_SPECS, FORWARD
from ottla.broker.dispatch.dispatcher import with_authorization
from ottla.broker.requests.error_responses import contains_error
from ottla.broker.security.authz.request_authorization import authorize_and_handle
from ottla.broker.security.authz.resource_rules import DENIAL_ERRORS
from ottla.broker.tests.handler_fixture import start
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.job import Job, run_to_end
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode

Right = tuple[AclOperation, ResourceType, str]
ID = b"t" * 16
SPECS = {spec.key: spec for spec in API_SPECS}
ENDPOINTS = [
    (at_controller, spec.key)
    for at_controller in (False, True)
    for spec in API_SPECS
    if (spec.controller if at_controller else spec.broker) is not None
]


def rules_of(key: ApiKey, *, at_controller: bool) -> tuple[AuthorizationRule, ...]:
    return SPECS[key].endpoint(at_controller=at_controller).authorization


def resource_rule(key: ApiKey, *, at_controller: bool) -> tuple[ResourceRule, ErrorResults]:
    rule = next(x for x in rules_of(key, at_controller=at_controller) if isinstance(x, ResourceRule))
    return rule, SPECS[key].error_response.results[0]


class AllowedClient:
    """Client with the listed permissions."""

    def __init__(self, version: int, *rights: Right) -> None:
        self.version = version
        self.spec: ApiSpec
        self.rights = rights
        self.image = MetadataImage(topics={"t": TopicImage("t", ID)}, topic_names={ID: "t"})

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return (operation, resource, name) in self.rights


def ask(asking: AllowedClient, request: Any, handler: Callable[[Any, Any], Any], *, at_controller: bool) -> Any:
    asking.spec = SPECS[request.SPEC.key]

    return start(authorize_and_handle(asking, request, handler, at_controller=at_controller))


def handed(answer_of: Callable[[Any], Any]) -> tuple[list[Any], Callable[[Any, Any], Any]]:
    seen: list[Any] = []

    def handler(_: Any, request: Any) -> Any:
        seen.append(request)
        return answer_of(request)

    return seen, handler


def empty(request: Any) -> Any:
    return response_class(ApiKey(request.SPEC.key))()


# ---------------------------------------------------------------- the rules of the rows


def test_forward_only_endpoints_have_their_rules_at_the_controller() -> None:
    forwarding = [spec for spec in API_SPECS if spec.broker == FORWARD]
    assert forwarding
    for spec in forwarding:
        assert spec.forwarding is not None, spec.key.name
        assert rules_of(spec.key, at_controller=True), spec.key.name


@pytest.mark.parametrize("at_controller", [False, True])
def test_endpoints_whose_handler_checks_all_permissions_have_a_bare_handler(*, at_controller: bool) -> None:
    _, handler = handed(empty)
    keys = [key for place, key in ENDPOINTS if place == at_controller]
    bare = {key for key in keys if with_authorization(handler, SPECS[key], at_controller=at_controller) is handler}
    assert bare == {
        key for key in keys if all(type(x) is Permission for x in rules_of(key, at_controller=at_controller))
    }
    assert (ApiKey.FETCH in bare, ApiKey.PRODUCE in bare) == (not at_controller, not at_controller)


WHOLE = [
    (at_controller, key, version)
    for at_controller, key in ENDPOINTS
    if any(isinstance(rule, RequestRule) for rule in rules_of(key, at_controller=at_controller))
    for version in range(SPECS[key].min_version, SPECS[key].max_version + 1)
]


HAS_ERROR_SINCE = {ApiKey.DESCRIBE_LOG_DIRS: 3, ApiKey.FETCH: 7}
"""Older responses have no field for the error."""


def rows_in(request: Any) -> Any:
    """Fill the rows of a request where its response has errors in rows."""
    module = sys.modules[type(request).__module__]
    for name, field, row in (
        ("topics", "OffsetCommitRequestTopic", lambda x: x("t", ID, [module.OffsetCommitRequestPartition(3)])),
        ("creations", "AclCreation", lambda x: x()),
        ("filters", "DeleteAclsFilter", lambda x: x()),
        ("entries", "AlterClientQuotasRequestEntryData", lambda x: x()),
        ("deletions", "ScramCredentialDeletion", lambda x: x("u", 1)),
        ("topic_partitions", "TopicPartitions", lambda x: x("t", [0])),
        ("dirs", "AlterReplicaLogDir", lambda x: x("/d", [module.AlterReplicaLogDirTopic("t", [0])])),
    ):
        if hasattr(module, field):
            setattr(request, name, [row(getattr(module, field))])
    return request


@pytest.mark.parametrize(("at_controller", "key", "version"), WHOLE, ids=str)
def test_request_without_permission_returns_authorization_error(at_controller: bool, key: ApiKey, version: int) -> None:
    request = rows_in(request_class(key)())
    needs = [rule for rule in rules_of(key, at_controller=at_controller) if isinstance(rule, RequestRule)]
    rights = [(n.operation, n.resource, CLUSTER_NAME if n.field is None else getattr(request, n.field)) for n in needs]
    seen, handler = handed(empty)
    ask(
        AllowedClient(version, *rights, (AclOperation.READ, ResourceType.TOPIC, "t")),
        request,
        handler,
        at_controller=at_controller,
    )
    assert seen == [request]
    for missing, need in zip(rights, needs, strict=True):
        seen.clear()
        left = [x for x in rights if x != missing]
        answer = ask(AllowedClient(version, *left), request, handler, at_controller=at_controller)
        assert seen == []
        raw = compiler.encode(answer, version)
        if version < HAS_ERROR_SINCE.get(key, 0):
            assert compiler.decode_exact(response_class(key), version, raw) == empty(request)
            continue
        assert run_to_end(
            contains_error(compiler.decode_exact(response_class(key), version, raw), DENIAL_ERRORS[need.resource])
        )


# ---------------------------------------------------------------- rows

_PARTS = {
    ApiKey.LIST_OFFSETS: ("ListOffsetsTopic", "ListOffsetsPartition"),
    ApiKey.OFFSET_COMMIT: ("OffsetCommitRequestTopic", "OffsetCommitRequestPartition"),
    ApiKey.DELETE_RECORDS: ("DeleteRecordsTopic", "DeleteRecordsPartition"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("OffsetForLeaderTopic", "OffsetForLeaderPartition"),
    ApiKey.OFFSET_DELETE: ("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition"),
    ApiKey.DESCRIBE_PRODUCERS: ("TopicRequest", None),
    ApiKey.CREATE_TOPICS: ("CreatableTopic", None),
    ApiKey.CREATE_PARTITIONS: ("CreatePartitionsTopic", None),
}
ROWS = [
    (at_controller, key)
    for at_controller, key in ENDPOINTS
    if any(isinstance(rule, ResourceRule) for rule in rules_of(key, at_controller=at_controller))
]


def naming(key: ApiKey, *names: str) -> Any:
    request: Any = request_class(key)()
    module = sys.modules[type(request).__module__]
    layout = SPECS[key].error_response.results[0]
    rows: list[Any] = []
    for name in names:
        if key not in _PARTS:
            rows.append(name)
            continue
        row_class, part_class = _PARTS[key]
        row = getattr(module, row_class)()
        setattr(row, "topic" if hasattr(row, "topic") else "name", name)
        if layout.nested is not None:
            part = 3 if part_class is None else getattr(module, part_class)()
            if part_class is not None:
                setattr(part, "partition" if hasattr(part, "partition") else "partition_index", 3)
            setattr(row, layout.nested.request_list, [part])
        rows.append(row)
    setattr(request, layout.request_list, rows)
    return request


def name_of(row: Any) -> str:
    if isinstance(row, str):
        return row
    for field in ("name", "topic", "group_id"):
        if hasattr(row, field):
            found: str = getattr(row, field)
            return found
    raise AssertionError(row)


@pytest.mark.parametrize(("at_controller", "key"), ROWS, ids=str)
def test_row_without_permission_returns_authorization_error(at_controller: bool, key: ApiKey) -> None:
    need, layout = resource_rule(key, at_controller=at_controller)
    version = min(SPECS[key].max_version, 9)
    rules = rules_of(key, at_controller=at_controller)
    wholes = [(rule.operation, rule.resource, "") for rule in rules if isinstance(rule, RequestRule)]
    request = naming(key, "a", "b", "c")
    seen, handler = handed(empty)
    asking = AllowedClient(version, *wholes, (need.operation, need.resource, "b"))
    answer = ask(asking, request, handler, at_controller=at_controller)
    assert [name_of(x) for x in getattr(seen[0], layout.request_list)] == ["b"]
    rows = getattr(answer, layout.response_list)
    assert [name_of(x) for x in rows] == ["a", "c"]
    code = DENIAL_ERRORS[need.resource]
    for row in rows:
        if layout.nested is None:
            assert row.error_code == code
        else:
            (part,) = row.partitions
            assert part.error_code == code
            assert (part.partition if hasattr(part, "partition") else part.partition_index) == 3
    compiler.encode(answer, version)
    every = [(need.operation, need.resource, name) for name in "abc"]
    answer = ask(AllowedClient(version, *wholes, *every), request, handler, at_controller=at_controller)
    assert seen[1] is request
    assert len(getattr(answer, layout.response_list)) == 0
    if need.cluster_operation is not None:
        asking = AllowedClient(version, *wholes, (need.cluster_operation, ResourceType.CLUSTER, CLUSTER_NAME))
        ask(asking, request, handler, at_controller=at_controller)
        assert seen[2] is request


def test_topic_id_row_is_authorized_by_topic_name() -> None:
    request = rows_in(request_class(ApiKey.OFFSET_COMMIT)())
    request.topics[0].name = ""
    outsider = type(request.topics[0])("", b"?" * 16, request.topics[0].partitions)
    request.topics.append(outsider)
    seen, handler = handed(empty)
    answer = ask(AllowedClient(10, (AclOperation.READ, ResourceType.GROUP, "")), request, handler, at_controller=False)
    assert [x.topic_id for x in seen[0].topics] == [b"?" * 16]  # the handler returns unknown topic id
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(x.topic_id, x.partitions[0].error_code) for x in answer.topics] == [(ID, code)]
    ask(
        AllowedClient(10, (AclOperation.READ, ResourceType.GROUP, ""), (AclOperation.READ, ResourceType.TOPIC, "t")),
        request,
        handler,
        at_controller=False,
    )
    assert seen[1] is request


def test_denied_rows_are_added_to_a_later_response() -> None:
    def later(_: Any, request: Any) -> Job[Any]:
        yield None
        return empty(request)

    request = naming(ApiKey.CREATE_PARTITIONS, "a", "b", "b")
    answer = ask(AllowedClient(3), request, later, at_controller=True)
    assert [row.name for row in answer.results] == ["a"]  # a name given twice is invalid in any case


def test_create_topics_configs_are_returned_only_with_describe_configs() -> None:
    request = naming(ApiKey.CREATE_TOPICS, "a", "b")
    module = sys.modules[type(request).__module__]

    def made(request: Any) -> Any:
        rows = [
            module.CreatableTopicResult(t.name, ID, 0, None, 0, 3, 2, [module.CreatableTopicConfigs("x", "1")])
            for t in request.topics
        ]
        return module.CreateTopicsResponse(topics=rows)

    rights = (
        (AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "b"),
    )
    answer = ask(AllowedClient(7, *rights), request, handed(made)[1], at_controller=True)
    response = [
        (t.topic_config_error_code, t.num_partitions, t.replication_factor, len(t.configs)) for t in answer.topics
    ]
    assert response == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, 0), (0, 3, 2, 1)]


# ---------------------------------------------------------------- settings and deletions


@pytest.mark.parametrize(
    ("key", "operation", "at_controller"),
    [
        (ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, False),
        (ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, True),
        (ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, True),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, True),
    ],
)
@pytest.mark.parametrize(
    ("kind", "name", "right"),
    [
        (2, "t", (ResourceType.TOPIC, "t")),
        (4, "1", (ResourceType.CLUSTER, CLUSTER_NAME)),
        (8, "1", (ResourceType.CLUSTER, CLUSTER_NAME)),
        (16, "m", (ResourceType.CLUSTER, CLUSTER_NAME)),
        (32, "g", (ResourceType.GROUP, "g")),
        (99, "?", None),
    ],
)
def test_config_resources_are_authorized_by_their_type(
    key: ApiKey,
    operation: AclOperation,
    at_controller: bool,
    kind: int,
    name: str,
    right: tuple[ResourceType, str] | None,
) -> None:
    request: Any = request_class(key)()
    module = sys.modules[type(request).__module__]
    row_class = getattr(module, "DescribeConfigsResource", None) or module.AlterConfigsResource
    request.resources = [row_class(kind, name)]
    seen, handler = handed(empty)
    answer = ask(AllowedClient(1), request, handler, at_controller=at_controller)
    rows = answer.results if hasattr(answer, "results") else answer.responses
    if right is None or (kind == 8 and operation is AclOperation.ALTER_CONFIGS):  # the handler refuses it
        assert (len(seen[0].resources), rows) == (1, [])
        return
    assert seen[0].resources == []
    assert [(row.resource_type, row.resource_name, row.error_code) for row in rows] == [
        (kind, name, DENIAL_ERRORS[right[0]])
    ]
    assert rows[0].error_message == DENIAL_ERRORS[right[0]].text
    compiler.encode(answer, 1)
    ask(AllowedClient(1, (operation, *right)), request, handler, at_controller=at_controller)
    assert seen[1] is request


@pytest.mark.parametrize("at_controller", [False, True])
def test_unknown_config_resource_type_returns_no_denied_rows(at_controller: bool) -> None:
    """The handler refuses all of them, as ``ConfigHelper`` does."""
    request: Any = request_class(ApiKey.DESCRIBE_CONFIGS)()
    row_class: Any = sys.modules[type(request).__module__].DescribeConfigsResource
    request.resources = [row_class(2, "secret"), row_class(99, "?")]
    seen, handler = handed(empty)
    answer = ask(AllowedClient(1), request, handler, at_controller=at_controller)
    assert (len(seen[0].resources), answer.results) == (2, [])


SEE, DELETE = (AclOperation.DESCRIBE, ResourceType.TOPIC, "t"), (AclOperation.DELETE, ResourceType.TOPIC, "t")
NAMED, BY_ID, BOTH, UNKNOWN = ("t", ZERO_UUID), (None, ID), ("t", ID), (None, b"?" * 16)


@pytest.mark.parametrize(
    ("rights", "wanted", "reported"),
    [
        ([], NAMED, ("t", ZERO_UUID)),
        ([SEE], NAMED, ("t", ZERO_UUID)),
        ([DELETE], NAMED, ("t", ZERO_UUID)),
        ([SEE, DELETE], NAMED, None),
        ([(AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)], NAMED, None),
        ([], BY_ID, (None, ID)),
        ([SEE], BY_ID, ("t", ID)),
        ([DELETE], BY_ID, None),
        ([], UNKNOWN, None),
        ([], BOTH, None),
        ([(AclOperation.DESCRIBE, ResourceType.TOPIC, "none")], ("none", ZERO_UUID), None),
        ([], ("none", ZERO_UUID), ("none", ZERO_UUID)),
    ],
)
@pytest.mark.parametrize("version", [5, 6])
def test_delete_topics_hides_names_without_describe_permission(
    rights: list[Right], wanted: tuple[str | None, bytes], reported: Any, version: int
) -> None:
    request: Any = request_class(ApiKey.DELETE_TOPICS)()
    module = sys.modules[type(request).__module__]
    if version < 6:
        if wanted[1] != ZERO_UUID:
            return
        request.topic_names = [wanted[0]]
    else:
        request.topics = [module.DeleteTopicState(*wanted)]
    seen, handler = handed(empty)
    answer = ask(AllowedClient(version, *rights), request, handler, at_controller=True)
    expected = [] if reported is None else [(*reported, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert [(r.name, r.topic_id, r.error_code) for r in answer.responses] == expected
    assert len(seen[0].topics) + len(seen[0].topic_names) == (reported is None)
    compiler.encode(answer, version)
