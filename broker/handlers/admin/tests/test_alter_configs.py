"""AlterConfigs and IncrementalAlterConfigs at a broker (``ConfigAdminManager``)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.admin import alter_configs, incremental_alter_configs
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages import alter_configs as replacing_messages
from ottla.wire.messages import incremental_alter_configs as incremental_messages

SET, DELETE, APPEND, SUBTRACT = range(4)
REQUEST, CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
FORWARDED = 41
NULL = "Null value not supported for : "
FIXED = "Cannot update these configs dynamically: "


class AlterConfigsNode(HandlerFixture):
    """Broker 1 with a controller that answers each resource with error 41."""

    def __init__(self) -> None:
        super().__init__(node_id="1")
        self.services.config.node_id = 1
        self.forwarded: list[Any] = []
        self.frames: list[bytes] = []
        self.services.controller_forwarder = SimpleNamespace(forward=self._forward)

    async def _forward(self, context: Any, request: Any) -> Any:
        self.forwarded += [(x.resource_type, x.resource_name) for x in request.resources]
        self.frames.append(bytes(context.frame))
        legacy = isinstance(request, replacing_messages.AlterConfigsRequest)
        row, answer = (
            (replacing_messages, replacing_messages.AlterConfigsResponse)
            if legacy
            else (incremental_messages, incremental_messages.IncrementalAlterConfigsResponse)
        )
        rows = [
            row.AlterConfigsResourceResponse(FORWARDED, None, x.resource_type, x.resource_name)
            for x in request.resources
        ]
        return answer(responses=rows)

    def answers(self, request: Any) -> list[tuple[int, str | None, int, str]]:
        legacy = isinstance(request, replacing_messages.AlterConfigsRequest)
        key = ApiKey.ALTER_CONFIGS if legacy else ApiKey.INCREMENTAL_ALTER_CONFIGS
        handler: Any = alter_configs if legacy else incremental_alter_configs
        version = 2 if legacy else 1

        async def run() -> Any:
            context = self.context(key, version)
            context.frame = encode_request(key, version, 7, "c", request)[4:]
            return await resolve(handler.handle(context, request))

        rows = run_virtual(run).responses
        return [(r.error_code, r.error_message, r.resource_type, r.resource_name) for r in rows]


def changed(kind: int, name: str, *changes: tuple[str, int, str | None]) -> incremental_messages.AlterConfigsResource:
    return incremental_messages.AlterConfigsResource(
        kind, name, [incremental_messages.AlterableConfig(*x) for x in changes]
    )


def replaced(kind: int, name: str, values: Mapping[str, str | None]) -> replacing_messages.AlterConfigsResource:
    return replacing_messages.AlterConfigsResource(
        kind, name, [replacing_messages.AlterableConfig(*x) for x in values.items()]
    )


@pytest.mark.parametrize(
    ("resource", "code", "why"),
    [
        (changed(4, "1", ("log.retention.ms", SET, "5")), FORWARDED, None),
        (changed(4, "+1", ("log.retention.ms", SET, "5")), FORWARDED, None),
        (changed(4, "", ("log.retention.ms", SET, "5")), FORWARDED, None),
        (changed(4, "2", ("log.retention.ms", SET, "5")), REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (changed(4, "-1"), REQUEST, "Unexpected broker id, expected 1, but received -1"),
        (changed(4, "one"), REQUEST, "Node id must be an integer, but it is: one"),
        (changed(4, "\u00b2"), REQUEST, "Node id must be an integer, but it is: \u00b2"),
        (
            changed(4, "1", ("log.retention.ms", SET, "0")),
            REQUEST,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (changed(4, "1", ("log.retention.ms", 9, "0")), REQUEST, "Unknown operations type 9"),
        (changed(4, "1", ("no.such", APPEND, "a")), CONFIG, "Unknown config name: no.such"),
        (changed(4, "1", ("no.such", SET, "a")), FORWARDED, None),
        (
            changed(4, "1", ("log.retention.ms", APPEND, "5")),
            CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (changed(4, "1", ("log.cleanup.policy", APPEND, "compact")), FORWARDED, None),
        (
            changed(4, "1", ("log.cleanup.policy", APPEND, " compact")),
            FORWARDED,
            None,
        ),
        (
            changed(4, "1", ("log.cleanup.policy", APPEND, "")),
            REQUEST,
            "Configuration 'log.cleanup.policy' values must not be empty.",
        ),
        (changed(4, "1", ("log.cleanup.policy", SUBTRACT, "delete")), FORWARDED, None),
        (
            changed(2, "t", ("retention.ms", SET, None), ("a", APPEND, None)),
            REQUEST,
            f"{NULL}retention.ms, a",
        ),
        (changed(2, "t", ("a", SET, "1"), ("a", SET, "2")), REQUEST, "Error due to duplicate config keys"),
        (changed(2, "t", ("retention.ms", SET, "soon")), FORWARDED, None),
        (replaced(4, "1", {"log.retention.ms": "5"}), FORWARDED, None),
        (
            replaced(4, "1", {"num.partitions": "5"}),
            REQUEST,
            f"{FIXED}[num.partitions]",
        ),
        (replaced(4, "2", {}), REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (replaced(2, "t", {"retention.ms": None}), REQUEST, f"{NULL}retention.ms"),
    ],
)
def test_config_resource_is_forwarded_or_refused_as_by_kafka(resource: Any, code: int, why: str | None) -> None:
    node = AlterConfigsNode()
    legacy = isinstance(resource, replacing_messages.AlterConfigsResource)
    request: Any = (
        replacing_messages.AlterConfigsRequest([resource])
        if legacy
        else incremental_messages.IncrementalAlterConfigsRequest([resource])
    )
    assert node.answers(request) == [(code, why, resource.resource_type, resource.resource_name)]
    assert bool(node.forwarded) == (code == FORWARDED)


def test_partly_refused_request_forwards_remaining_resources() -> None:
    node = AlterConfigsNode()
    bad, good = changed(4, "2"), changed(2, "t", ("retention.ms", SET, "5"))
    rows = node.answers(incremental_messages.IncrementalAlterConfigsRequest([bad, good], validate_only=True))
    assert [(row[0], row[3]) for row in rows] == [(FORWARDED, "t"), (REQUEST, "2")]
    assert node.forwarded == [(2, "t")]
    head = parse_request(memoryview(node.frames[0]))
    assert (head.key, head.version, head.correlation_id, head.client_id) == (44, 1, 7, "c")
    sent: Any = compiler.decode(
        incremental_messages.IncrementalAlterConfigsRequest, 1, node.frames[0], head.body_position
    )[0]
    assert sent == incremental_messages.IncrementalAlterConfigsRequest([good], validate_only=True)


def test_resource_named_twice_is_refused_each_time() -> None:
    node = AlterConfigsNode()
    again = changed(2, "t", ("retention.ms", SET, "5"))
    rows = node.answers(incremental_messages.IncrementalAlterConfigsRequest([again, again]))
    assert rows == [(REQUEST, "Each resource must appear at most once.", 2, "t")] * 2
    assert not node.forwarded
