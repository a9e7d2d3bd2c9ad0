"""Audit log: logged decisions, their format, and limits of their number."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_AUDIT_LINES_PER_MINUTE, MAX_AUDIT_NAME_CHARS
from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_secure_connection import SETTINGS, login
from ottla.broker.requests.peer import Peer
from ottla.broker.security.authn.listener_security import build_listener_security
from ottla.broker.security.authz.audit_log import PENDING_PER_RECORD, AuditLog, escape_name
from ottla.broker.security.authz.authorizer import Authorizer
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time
from ottla.controller.config.config_keys import AUDIT_LOG, broker_key, check_value
from ottla.controller.metadata.acl import AclOperation, AclPermissionType, PatternType, ResourceType, StandardAcl
from ottla.wire.api_keys import ApiKey

SPECS = {spec.key: spec for spec in API_SPECS}


class AuditClock:
    def __init__(self) -> None:
        self.now = 5.0

    def monotonic_ms(self) -> float:
        return self.now


class AuditFixture:
    """Authorizer with rules, a client, and the logged lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture, level: int, *acls: StandardAcl, is_open: bool = False) -> None:
        self.caplog, self.clock = caplog, AuditClock()
        caplog.set_level(level, "ottla.audit")
        self.audit = AuditLog(self.clock, level)  # type: ignore[arg-type]
        self.authorizer = Authorizer(["User:admin"], is_open=is_open)
        for number, acl in enumerate(acls):
            self.authorizer._acls.add(number.to_bytes(16, "big"), acl)

    def ask(self, key: ApiKey, operation: AclOperation, resource: ResourceType, name: str, **more: Any) -> bool:
        peer = Peer(more.pop("host", "10.0.0.7"), ("here", 9092))
        peer.principal = more.pop("who", "User:bob")
        services: Any = SimpleNamespace(authorizer=self.authorizer, audit=self.audit)
        context: Any = SimpleNamespace(services=services, peer=peer, spec=SPECS[key])
        return RequestContext.may(context, operation, resource, name, **more)

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [(x.levelname, x.getMessage()) for x in self.caplog.records if x.name == "ottla.audit"]


def acl(
    permission: AclPermissionType, operation: AclOperation, principal: str = "User:bob", **more: Any
) -> StandardAcl:
    fields = {"resource": ResourceType.TOPIC, "name": "events", "pattern": PatternType.LITERAL, "host": "*", **more}
    return StandardAcl(principal=principal, operation=operation, permission=permission, **fields)


ALLOW, DENY = (
    acl(AclPermissionType.ALLOW, AclOperation.READ),
    acl(AclPermissionType.DENY, AclOperation.READ, pattern=PatternType.PREFIXED, name="ev"),
)
HEAD = "Principal = User:bob is {} operation = {} from host = 10.0.0.7 on resource = Topic:LITERAL:events "
TAIL = "for request = Fetch with resourceRefCount = 1 based on rule "
RULE = (
    "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName={}, patternType={}, principal=User:bob, host=*, "
    "operation=READ, permissionType={}])"
)


@pytest.mark.parametrize(
    ("acls", "is_open", "text", "rule"),
    [
        ([ALLOW], False, "Allowed", RULE.format("events", "LITERAL", "ALLOW")),
        ([ALLOW, DENY], False, "Denied", RULE.format("ev", "PREFIXED", "DENY")),
        ([], False, "Denied", "DefaultDeny"),
        ([], True, "Allowed", "DefaultAllow"),
        ([acl(AclPermissionType.ALLOW, AclOperation.READ, "User:carol")], True, "Denied", "DefaultDeny"),
        ([acl(AclPermissionType.ALLOW, AclOperation.WRITE)], False, "Denied", "DefaultDeny"),
    ],
)
def test_audit_line_has_format_of_kafka(
    caplog: pytest.LogCaptureFixture, acls: list[StandardAcl], is_open: bool, text: str, rule: str
) -> None:
    fixture = AuditFixture(caplog, logging.DEBUG, *acls, is_open=is_open)
    assert fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, "events") == (text == "Allowed")
    level = "DEBUG" if text == "Allowed" else "INFO"
    assert fixture.lines == [(level, HEAD.format(text, "READ") + TAIL + rule)]


def test_audit_line_names_rule_that_implies_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.DEBUG, ALLOW)
    assert fixture.ask(ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.TOPIC, "events")
    ((_, line),) = fixture.lines
    assert line.endswith(RULE.format("events", "LITERAL", "ALLOW"))


def test_audit_line_of_super_user_names_super_user_rule(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.DEBUG, acl(AclPermissionType.DENY, AclOperation.ALL, "User:*"))
    assert fixture.ask(
        ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster", who="User:admin"
    )
    ((_, line),) = fixture.lines
    assert line.startswith("Principal = User:admin is Allowed operation = CREATE ")
    assert line.endswith("on resource = Cluster:LITERAL:kafka-cluster for request = CreateTopics "
                         "with resourceRefCount = 1 based on rule SuperUser")  # fmt: skip


def test_audit_level_info_logs_only_denials(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.INFO, ALLOW)
    assert fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, "events")
    assert not fixture.ask(ApiKey.ADD_OFFSETS_TO_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
    ((level, line),) = fixture.lines
    assert (level, " on resource = TransactionalId:LITERAL:t for request = AddOffsetsToTxn " in line) == ("INFO", True)


@pytest.mark.parametrize(
    ("key", "operation", "resource", "more", "count"),
    [
        (ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, {}, 0),
        (ApiKey.INIT_PRODUCER_ID, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, {}, 0),
        (ApiKey.METADATA, AclOperation.CREATE, ResourceType.CLUSTER, {}, 0),
        (ApiKey.METADATA, AclOperation.CREATE, ResourceType.TOPIC, {}, 1),
        (ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.TOPIC, {"is_look": True}, 0),
        (ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.TOPIC, {}, 1),
        (ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.CLUSTER, {}, 0),
        (ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.TOPIC, {}, 1),
        (ApiKey.DESCRIBE_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, {}, 1),
    ],
)
def test_audit_of_filtering_checks_logs_no_denial(
    caplog: pytest.LogCaptureFixture,
    key: ApiKey,
    operation: AclOperation,
    resource: ResourceType,
    more: Any,
    count: int,
) -> None:
    fixture = AuditFixture(caplog, logging.DEBUG)
    assert not fixture.ask(key, operation, resource, "x", **more)
    assert len(fixture.lines) == count
    assert fixture.ask(key, operation, resource, "x", who="User:admin", **more)
    assert len(fixture.lines) == count + 1


def test_repeated_decision_is_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.INFO)
    for _ in range(500):
        fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, "events")
    assert len(fixture.lines) == 1
    fixture.clock.now += 60_000
    fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, "events")
    again = HEAD.format("Denied", "READ") + TAIL + "DefaultDeny"
    assert [x for _, x in fixture.lines] == [again, f"499 times more within a minute: {again}", again]


def test_counts_of_repeated_decisions_are_logged_in_portions(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.INFO)

    def ask(number: int) -> int:
        before = len(fixture.lines)
        fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, f"t{number}")
        return len(fixture.lines) - before

    for number in (*range(MAX_AUDIT_LINES_PER_MINUTE), *range(MAX_AUDIT_LINES_PER_MINUTE + 1)):
        ask(number)
    fixture.clock.now += 60_000
    written = [ask(0) for _ in range(MAX_AUDIT_LINES_PER_MINUTE // PENDING_PER_RECORD + 2)]
    assert written == [
        PENDING_PER_RECORD + 1,
        *[PENDING_PER_RECORD] * (MAX_AUDIT_LINES_PER_MINUTE // PENDING_PER_RECORD - 1),
        1,
        0,
    ]
    again = [x for _, x in fixture.lines if x.startswith("1 times more within a minute: ")]
    assert len({*again}) == len(again) == MAX_AUDIT_LINES_PER_MINUTE
    assert fixture.lines[-1] == ("WARNING", "1 decisions more within a minute were not logged")


def test_audit_lines_are_limited_per_minute_with_count_of_dropped(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.INFO)
    for number in range(MAX_AUDIT_LINES_PER_MINUTE + 250):
        fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, f"t{number}")
    assert len(fixture.lines) == MAX_AUDIT_LINES_PER_MINUTE
    fixture.clock.now += 60_000
    fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, "t0")
    assert fixture.lines[MAX_AUDIT_LINES_PER_MINUTE:][0] == (
        "WARNING",
        "250 decisions more within a minute were not logged",
    )
    assert len(fixture.lines) == MAX_AUDIT_LINES_PER_MINUTE + 2


def test_allowed_decisions_use_at_most_half_of_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    fixture = AuditFixture(caplog, logging.DEBUG)
    for number in range(MAX_AUDIT_LINES_PER_MINUTE + 250):
        fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, f"t{number}", who="User:admin")
    for number in range(MAX_AUDIT_LINES_PER_MINUTE // 2 + 250):
        fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, f"t{number}")
    levels = [level for level, _ in fixture.lines]
    assert (levels.count("DEBUG"), levels.count("INFO")) == (
        MAX_AUDIT_LINES_PER_MINUTE // 2,
        MAX_AUDIT_LINES_PER_MINUTE // 2,
    )


def test_acl_resource_name_is_escaped_and_truncated_in_audit_line(caplog: pytest.LogCaptureFixture) -> None:
    name = "a\nb" + "x" * 900
    fixture = AuditFixture(caplog, logging.INFO, acl(AclPermissionType.DENY, AclOperation.READ, name=name))
    fixture.ask(ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC, name)
    ((_, result),) = fixture.lines
    assert "resourceName=a\\nbxxx" in result
    assert result.isprintable()
    assert len(result) < 1_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("größe", "größe"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u2028", "\\u2028"),
        ("x" * 9_000, "x" * MAX_AUDIT_NAME_CHARS + "..."),
    ],
)
def test_resource_and_principal_names_are_escaped_in_audit_line(
    caplog: pytest.LogCaptureFixture, text: str, line: str
) -> None:
    assert escape_name(text) == line
    fixture = AuditFixture(caplog, logging.INFO)
    fixture.ask(ApiKey.DESCRIBE_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, text, who=f"User:{text[:200]}")
    ((_, result),) = fixture.lines
    assert f"Group:LITERAL:{line} " in result
    assert result.isprintable()


def test_audit_log_is_off_by_default() -> None:
    clock: Any = AuditClock()
    assert [AuditLog.from_level(clock, x) is None for x in ("OFF", "off", "INFO", "debug")] == [
        True,
        True,
        False,
        False,
    ]
    key = broker_key(AUDIT_LOG)
    assert key is not None
    assert key.default == "OFF"
    assert check_value(key, "debug") is None
    assert check_value(key, "loud") is not None


# ------------------------------------------------------------------ logins


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_login_audit_lines_contain_no_secret(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    node, fixture = DispatcherFixture(monkeypatch), AuditFixture(caplog, level)
    security = build_listener_security(SETTINGS, "IN", "SASL_PLAINTEXT", lambda *_: None, audit=fixture.audit)
    assert security is not None

    async def run() -> None:
        for password in ("alice-secret", "wrong-secret"):
            line = ClientStream()
            line.send_bytes(login(password))
            line.disconnect()
            await SecureConnection(node.dispatcher, line, security).serve()

    in_virtual_time(run)
    reported = [x for _, x in fixture.lines]
    host, listener = ClientStream().peer, "PLAINTEXT"
    good = f"Principal = User:alice is Authenticated from host = {host} at listener = {listener} by PLAIN"
    assert reported[:-1] == ([good] if level == logging.DEBUG else [])
    bad = f"Failed authentication from host = {host} at listener = {listener}: "
    assert reported[-1] == f"{bad}Authentication failed: Invalid username or password"
