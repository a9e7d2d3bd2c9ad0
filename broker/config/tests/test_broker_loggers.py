"""Loggers as a resource of DescribeConfigs and IncrementalAlterConfigs (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin import describe_configs, incremental_alter_configs
from ottla.broker.handlers.controller import incremental_alter_configs as at_controller
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.env.log_escaping import LOGGER_NAMES
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
NOT_SUPPORTED = "as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


@pytest.fixture(autouse=True)
def levels_are_restored() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("ottla", *LOGGER_NAMES)}
    for name in before:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("ottla").setLevel(logging.INFO)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def changes(*rows: tuple[str, int, str | None], kind: int = 8, name: str = "1") -> AlterConfigsResource:
    return AlterConfigsResource(kind, name, [AlterableConfig(*row) for row in rows])


class LoggerClient(RequestContext):
    """Request of a client with the cluster permissions in ``services.rights``."""

    def may(
        self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME, *, is_look: bool = False
    ) -> bool:
        rights: Any = self.services
        return operation in rights.rights and resource is ResourceType.CLUSTER and name == CLUSTER_NAME


class LoggerNode(HandlerFixture):
    """Node with a controller that answers each resource with error 41."""

    def __init__(self) -> None:
        super().__init__()
        self.forwarded: list[AlterConfigsResource] = []
        self.services.controller_forwarder = SimpleNamespace(forward=self._forward)
        self.rights = {AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION}

    async def _forward(self, context: Any, request: Any) -> Any:
        sent = parse_request(memoryview(context.frame))
        in_frame, _ = compiler.decode(IncrementalAlterConfigsRequest, 1, sent.frame, sent.body_position)
        assert in_frame == IncrementalAlterConfigsRequest(list(request.resources), request.validate_only)
        self.forwarded += request.resources
        rows = [AlterConfigsResourceResponse(41, None, x.resource_type, x.resource_name) for x in request.resources]
        return IncrementalAlterConfigsResponse(responses=rows)

    def alter(self, *resources: AlterConfigsResource, handler: Any = None, validate_only: bool = False) -> Any:
        async def run() -> Any:
            self.services.rights = self.rights
            request = IncrementalAlterConfigsRequest(list(resources), validate_only)
            made = self.context(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
            context = LoggerClient(**{field: getattr(made, field) for field in RequestContext.__dataclass_fields__})
            context.frame = encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 5, "client", request)[4:]
            return await resolve((handler or incremental_alter_configs).handle(context, request))

        return [(row.error_code, row.error_message) for row in run_virtual(run).responses]

    def described(self, name: str = "1", keys: list[str] | None = None) -> Any:
        async def run() -> Any:
            resource = DescribeConfigsResource(8, name, keys)
            context = self.context(ApiKey.DESCRIBE_CONFIGS, 4)
            return await resolve(describe_configs.handle(context, DescribeConfigsRequest([resource], True, True)))

        return as_decoded(run_virtual(run), 4).results[0]

    def level(self, name: str) -> str:
        return {row.name: row.value for row in self.described().configs}[name]


def test_describe_configs_of_loggers_returns_effective_levels() -> None:
    node = LoggerNode()
    logging.getLogger("ottla.txn").setLevel(7)
    logging.getLogger("ottla.isr").setLevel(logging.CRITICAL + 1)
    rows = {row.name: row for row in node.described().configs}
    assert set(rows) == {*LOGGER_NAMES, "root"}
    assert [rows[x].value for x in ("root", "ottla.admin", "ottla.txn", "ottla.isr")] == [
        "INFO",
        "INFO",
        "DEBUG",
        "OFF",
    ]
    row = rows["root"]
    assert (row.config_source, row.config_type, row.read_only, row.is_sensitive, row.synonyms) == (
        6,
        0,
        False,
        False,
        [],
    )
    assert [row.name for row in node.described(keys=["root", "nope"]).configs] == ["root"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
        ("2147483648", "Broker id must be an integer, but it is: 2147483648"),
        ("7", "Unexpected broker id, expected 1 but received 7"),
    ],
)
def test_describe_configs_of_loggers_of_another_node_is_refused(name: str, message: str) -> None:
    result = LoggerNode().described(name)
    assert (result.error_code, result.error_message, result.configs) == (42, message, [])


def test_alter_logger_level_sets_and_unsets_it() -> None:
    node = LoggerNode()
    assert node.alter(changes(("ottla.txn", SET, "TRACE"), ("root", SET, "WARN"))) == [(0, None)]
    assert (node.level("ottla.txn"), node.level("root"), node.level("ottla.admin")) == ("TRACE", "WARN", "WARN")
    assert logging.getLogger("ottla.txn").isEnabledFor(5)
    assert node.alter(changes(("ottla.txn", DELETE, None)), handler=at_controller) == [(0, None)]
    assert node.level("ottla.txn") == "WARN"
    assert node.forwarded == []


@pytest.mark.parametrize(
    ("rows", "code", "message"),
    [
        ([("no.such", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ([("ottla", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger ottla does not exist!"),
        ([("no.such", DELETE, None)], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (
            [("root", SET, "info")],
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of root to info {NOT_SUPPORTED}",
        ),
        (
            [("root", SET, "OFF")],
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of root to OFF {NOT_SUPPORTED}",
        ),
        (
            [("root", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            [("root", APPEND, "INFO")],
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [("root", SUBTRACT, "INFO")],
            ErrorCode.INVALID_REQUEST,
            "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
        ([("root", 9, "INFO")], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ([("root", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : root"),
        (
            [("root", SET, "INFO"), ("root", SET, "WARN")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
    ],
)
def test_alter_invalid_logger_changes_no_level(rows: Any, code: ErrorCode, message: str | None) -> None:
    node = LoggerNode()
    assert node.alter(changes(("ottla.txn", SET, "ERROR"), *rows)) == [(code, message)]
    assert node.level("ottla.txn") == "INFO"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Node id must be an integer, but it is: "),
        ("x", "Node id must be an integer, but it is: x"),
        ("2", "Unexpected node id. Expected 1, but received 2"),
    ],
)
def test_alter_logger_of_another_node_is_refused(name: str, message: str) -> None:
    assert LoggerNode().alter(changes(("root", SET, "ERROR"), name=name)) == [(ErrorCode.INVALID_REQUEST, message)]


def test_alter_logger_resource_named_twice_changes_no_level() -> None:
    node = LoggerNode()
    twice = [changes(("root", SET, "ERROR")), changes(("root", SET, "WARN"))]
    assert node.alter(*twice) == [(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2
    assert node.level("root") == "INFO"


def test_alter_logger_validate_only_changes_no_level() -> None:
    node = LoggerNode()
    assert node.alter(changes(("root", SET, "ERROR")), validate_only=True) == [(0, None)]
    assert node.level("root") == "INFO"


def test_alter_of_other_resources_is_forwarded_to_controller() -> None:
    node = LoggerNode()
    other = changes(("retention.ms", SET, "1"), kind=2, name="t")
    assert node.alter(changes(("root", SET, "ERROR")), other) == [(41, None), (0, None)]
    assert node.forwarded == [other]
    assert node.level("root") == "ERROR"
    assert node.alter(other) == [(41, None)]


@pytest.mark.parametrize(
    ("handler", "operation", "message"),
    [
        (incremental_alter_configs, AclOperation.ALTER_CONFIGS, None),
        (at_controller, AclOperation.CLUSTER_ACTION, "Cluster authorization failed."),
    ],
)
def test_alter_logger_requires_permission(handler: Any, operation: AclOperation, message: str | None) -> None:
    node = LoggerNode()
    node.rights = {AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION} - {operation}
    refused = [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)]
    assert node.alter(changes(("root", SET, "ERROR")), handler=handler) == refused
    assert node.level("root") == "INFO"
    node.rights = {operation}
    assert node.alter(changes(("root", SET, "ERROR")), handler=handler) == [(0, None)]
