"""Cordoned log directories in heartbeats to the controller (KIP-1066)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.handlers.admin import describe_log_dirs
from ottla.broker.metadata.tests.test_broker_lifecycle import BEAT_S, ME, SEEN_S, FakeLifecycleController
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.metadata.record_serde import METADATA_VERSION
from ottla.jobs.job import run_to_end


@pytest.mark.parametrize(("level", "reported"), [(30, [[b"a" * 16, b"b" * 16], []]), (29, [None, None])])
def test_cordoned_log_dirs_are_sent_at_once_until_applied(level: int, reported: list[Any]) -> None:
    fixture = FakeLifecycleController()

    def set_to(value: str | None) -> None:
        settings = {} if value is None else {"cordoned.log.dirs": value}
        features = {METADATA_VERSION: level}
        fixture.truth = replace(fixture.truth, features=features, configs={(RESOURCE_BROKER, str(ME)): settings})

    async def scenario() -> None:
        fixture.received.clear()
        for value, expected in zip(("xx", None), reported, strict=True):
            set_to(value)
            fixture.commit(rack="r")  # an unrelated metadata change
            await trio.sleep(SEEN_S + 0.01)
            assert fixture.beats.pop().cordoned_log_dirs == expected
            assert trio.current_time() - fixture.received[-1][0] < 0.02, "at once"
            fixture.commit(cordoned_log_dirs=expected)
            await trio.sleep(BEAT_S)
        await trio.sleep(BEAT_S)
        assert fixture.beats[-1].cordoned_log_dirs is None, "what is nothing new is not said"

    fixture.run_lifecycle(scenario)


def test_cordoned_log_dirs_unset_are_not_sent() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        await trio.sleep(3 * BEAT_S)
        assert {b.cordoned_log_dirs for b in fixture.beats} == {None}

    fixture.run_lifecycle(scenario)


@pytest.mark.parametrize(("level", "expected"), [(30, True), (29, False)])
def test_describe_log_dirs_is_cordoned_depends_on_metadata_version(level: int, expected: bool) -> None:
    disk = SimpleNamespace(usage=lambda path: (2, 1))
    directory = SimpleNamespace(path="/a", full_path="/a", disk=disk, logs={})
    storage = SimpleNamespace(offline=(), is_cordoned=lambda d: d is directory)
    image = SimpleNamespace(features={METADATA_VERSION: level})
    context: Any = SimpleNamespace(services=SimpleNamespace(log_dirs=storage), image=image)
    row = run_to_end(describe_log_dirs._row(context, directory, None))  # type: ignore[arg-type]
    assert (row.log_dir, row.is_cordoned) == ("/a", expected)
