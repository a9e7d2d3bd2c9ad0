"""Observation of requests: only with a listener, an export that is available, or a console."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.components.http_endpoints import start_observability
from ottla.broker.config.node_config import NodeConfig


def observers(settings: dict[str, str]) -> list[Any]:
    """Return the request observers of a node without an HTTP listener; with any, the Raft driver has one, too."""
    tasks: list[Any] = []
    raft_driver = SimpleNamespace(step_observers=[])
    made: Any = SimpleNamespace(
        services=SimpleNamespace(config=NodeConfig(values=settings), remote_reads=None),
        request_observers=[],
        controller=SimpleNamespace(subscribe=lambda callback: None, raft_driver=raft_driver),
        **dict.fromkeys(("log_dirs", "replica_manager", "cleaner", "scrubber", "acceptors", "remote_log_manager")),
    )
    listening: Any = SimpleNamespace(metrics=None, clients={"PLAINTEXT": None})
    nursery: Any = SimpleNamespace(start_soon=lambda *task: tasks.append(task))
    env: Any = SimpleNamespace(monotonic_ms=lambda: 0.0, now_ms=lambda: 0, random=lambda: 0.0)
    start_observability(env, made, listening, nursery)
    found: list[Any] = made.request_observers
    assert len(raft_driver.step_observers) == bool(found)
    return found


def test_requests_are_observed_for_an_export_and_for_a_console() -> None:
    assert len(observers({"ottla.otlp.endpoint": "http://127.0.0.1:4318"})) == 1
    assert len(observers({"ottla.otlp.endpoint": "http://127.0.0.1:4318", "ottla.otlp.trace.ratio": "0x1p-1"})) == 2
    assert len(observers({"ottla.console.listener": "127.0.0.1:8090"})) == 1


def test_requests_are_not_observed_for_an_export_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ottla.broker.components.otlp_export", None)
    assert observers({"ottla.otlp.endpoint": "http://127.0.0.1:4318"}) == []
