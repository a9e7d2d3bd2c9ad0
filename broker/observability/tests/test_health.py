"""Readiness of a node: one reason for each state in which it must get no traffic."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata.broker_lifecycle import BrokerState
from ottla.broker.observability.health import HealthSources, readiness_reasons, render_health


def sources(state: BrokerState = BrokerState.RUNNING, **changed: Any) -> HealthSources:
    values = {"fenced": False, "leader": 1, "offline": (), "is_broker": True, "registered": True, **changed}
    brokers = {4: SimpleNamespace(fenced=values["fenced"])} if values["registered"] else {}
    image: Any = SimpleNamespace(brokers=brokers)
    return HealthSources(
        4,
        values["is_broker"],
        True,
        lambda: state,
        lambda: image,
        lambda: values["leader"],
        lambda: values["offline"],
    )


@pytest.mark.parametrize(
    ("state", "changed", "reasons"),
    [
        (BrokerState.RUNNING, {}, []),
        (BrokerState.NOT_RUNNING, {"registered": False}, ["not_started"]),
        (BrokerState.STARTING, {"registered": False, "leader": -1}, ["no_controller", "not_registered"]),
        (BrokerState.RECOVERY, {"fenced": True}, ["log_recovery", "fenced"]),
        (BrokerState.RUNNING, {"fenced": True}, ["fenced"]),
        (BrokerState.RUNNING, {"leader": -1}, ["no_controller"]),
        (BrokerState.RUNNING, {"offline": ("/a", "/b")}, ["log_directory_failed"] * 2),
        (BrokerState.PENDING_CONTROLLED_SHUTDOWN, {}, ["stopping"]),
        (BrokerState.SHUTTING_DOWN, {}, ["stopping"]),
        (BrokerState.NOT_RUNNING, {"is_broker": False, "fenced": True}, []),
        (BrokerState.NOT_RUNNING, {"is_broker": False, "leader": -1}, ["no_controller"]),
    ],
)
def test_node_is_ready_only_without_reasons(state: BrokerState, changed: dict[str, Any], reasons: list[str]) -> None:
    requested = sources(state, **changed)
    found = readiness_reasons(requested)
    assert [reason.reason for reason in found] == reasons
    document = json.loads(render_health(requested, found))
    assert document["status"] == ("not_ready" if reasons else "ready")
    assert [row["reason"] for row in document["reasons"]] == reasons
    assert all(row["message"] for row in document["reasons"])
    assert document.get("broker_state") == (state.name if requested.is_broker else None)
    assert document["node_id"] == 4
