"""Settings of a topic with tiered storage, and of one whose tiered storage ends."""

from __future__ import annotations

import pytest

from ottla.controller.config.config_validation import check_topic
from ottla.wire.errors import ErrorCode, ProtocolError

ENABLED = {"remote.log.storage.system.enable": "true"}
TIERED = {"remote.storage.enable": "true"}


def problem(
    values: dict[str, str], broker: dict[str, str] | None = None, existing: dict[str, str] | None = None
) -> str | None:
    try:
        check_topic(values, ENABLED if broker is None else broker, existing or {})
    except ProtocolError as error:
        return f"{error.message}" if error.code is ErrorCode.INVALID_CONFIG else str(error.code)
    return None


def test_remote_storage_needs_a_broker_that_has_it_enabled() -> None:
    assert problem(TIERED) is None
    for broker in ({}, {"remote.log.storage.system.enable": "false"}):
        assert "Tiered Storage functionality is disabled" in (problem(TIERED, broker) or "")
        assert problem({"remote.storage.enable": "false"}, broker) is None


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_remote_storage_of_compacted_topic_is_rejected(policy: str) -> None:
    expected = "Remote log storage only supports topics with cleanup.policy=delete"
    assert expected in (problem({**TIERED, "cleanup.policy": policy}) or "")
    assert expected in (problem(TIERED, {**ENABLED, "log.cleanup.policy": policy}) or "")
    assert problem({**TIERED, "cleanup.policy": "delete"}, {**ENABLED, "log.cleanup.policy": policy}) is None
    assert problem({**TIERED, "cleanup.policy": ""}) is None


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_local_retention_is_at_most_the_retention(name: str) -> None:
    local = f"local.{name}"
    assert problem({**TIERED, name: "1000", local: "1000"}) is None
    assert problem({**TIERED, name: "1000", local: "-2"}) is None
    assert problem({**TIERED, name: "-1", local: "-1"}) is None
    assert problem({**TIERED, name: "-1", local: "5"}) is None
    more = problem({**TIERED, name: "1000", local: "1001"})
    assert more == (
        f"Invalid value 1001 for configuration {local}: Value must not be more than {name} property value: 1000"
    )
    unlimited = problem({**TIERED, name: "1000", local: "-1"})
    assert unlimited == (
        f"Invalid value -1 for configuration {local}: Value must not be -1 as {name} value is set as 1000."
    )
    assert problem({"remote.storage.enable": "false", name: "1000", local: "1001"}) is None


def test_local_retention_is_compared_with_the_retention_of_the_broker() -> None:
    assert problem({**TIERED, "local.retention.ms": "7200000"}, {**ENABLED, "log.retention.hours": "1"}) is not None
    assert problem({**TIERED, "local.retention.ms": "3600000"}, {**ENABLED, "log.retention.hours": "1"}) is None
    assert problem({**TIERED, "local.retention.ms": "5"}, {**ENABLED, "log.retention.hours": "-1"}) is None, "no limit"
    assert problem({**TIERED, "retention.bytes": "5"}, {**ENABLED, "log.local.retention.bytes": "6"}) is not None


def test_invalid_stored_value_of_the_broker_has_no_effect() -> None:
    assert problem({**TIERED, "local.retention.ms": "5"}, {**ENABLED, "log.retention.ms": "x"}) is None


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_topic_that_is_not_copied_has_equal_retentions(name: str) -> None:
    values = {**TIERED, "remote.log.copy.disable": "true", name: "1000"}
    assert problem(values) is None
    assert problem({**values, f"local.{name}": "1000"}) is None
    assert "must be set to the identical value" in (problem({**values, f"local.{name}": "999"}) or "")


def test_remote_storage_ends_only_with_the_deletion_of_remote_data() -> None:
    for values in ({}, {"remote.storage.enable": "false"}):
        assert "without deleting remote data" in (problem(values, existing=TIERED) or "")
        assert problem({**values, "remote.log.delete.on.disable": "true"}, existing=TIERED) is None
    assert problem({**TIERED, "remote.log.copy.disable": "true"}, existing=TIERED) is None
