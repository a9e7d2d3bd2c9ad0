"""Warnings and numbers of tiered storage on the console: failures, copy lag, remote part of partitions."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path

import trio

from ottla.broker.remote_log.tests.remote_log_manager_fixture import OTHER, ROUND_S, ManagerFixture
from ottla.broker.storage.tiered.remote_storage import RemoteStorageError
from ottla.broker.tests.broker_storage_fixture import NODE_ID, led_topic
from ottla.console.tests.console_fixture import Browser, console, next_event
from ottla.console.tiering import (
    FAILURE_WINDOW_MS,
    LAG_WINDOW_MS,
    RemotePartitionRow,
    RemoteTopicState,
    RemoteWarning,
    describe_remote_topic,
    find_remote_warnings,
)
from ottla.jobs.job import run_to_end


def warnings(fixture: ManagerFixture, later_ms: float = 0) -> list[RemoteWarning]:
    return run_to_end(find_remote_warnings(fixture.manager, fixture.env.monotonic_ms() + later_ms))


def state(fixture: ManagerFixture) -> RemoteTopicState | None:
    return describe_remote_topic(fixture.manager, fixture.replica_manager, "t", [0, 1], fixture.env.monotonic_ms())


def test_failing_store_is_a_warning_until_the_failures_end() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        assert warnings(fixture) == []
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        problems = [warning.problem for warning in warnings(fixture)]
        assert problems == [
            "Copies to the remote store fail, for topic t: injected: copy.",
            "Deletions in the remote store fail, for topic t: injected: delete.",
        ]
        fixture.store_fails = False
        await trio.sleep(FAILURE_WINDOW_MS / 1000 + ROUND_S)
        assert warnings(fixture) == []

    fixture.play(scenario)


def test_failures_of_several_topics_are_one_warning_with_the_last_error() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        now_ms = fixture.env.monotonic_ms()
        for number in range(3):
            error = RemoteStorageError(f"error\n{number}")
            fixture.manager.topic_stats(f"topic-{number}").count_failure("fetch_errors", error, now_ms + number)
        (warning,) = warnings(fixture)
        assert warning.problem == ("Reads of the remote store fail, for topic topic-2 and 2 others: error\\n2.")
        assert warning.remedy.startswith("Consumers get no records")

    fixture.play(scenario)


def test_copies_that_lag_for_long_are_a_warning() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        rolled = len(fixture.replica.log.segments) - 1
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        assert warnings(fixture, later_ms=LAG_WINDOW_MS - 2 * ROUND_S * 1000) == []
        await trio.sleep(3 * ROUND_S)
        (warning,) = warnings(fixture, later_ms=LAG_WINDOW_MS - 2 * ROUND_S * 1000)
        assert f"lag for 10 minutes: {rolled} segments, topics t." in warning.problem
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        assert warnings(fixture, later_ms=LAG_WINDOW_MS) == []

    fixture.play(scenario)


def test_topic_has_remote_size_lag_and_last_error_on_its_leader() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        log = fixture.replica.log
        rolled = log.size_bytes - log.segments.active.size_bytes
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        found = state(fixture)
        assert found is not None
        (row,) = found.partitions.values()
        assert (row.local_start, row.lag_segments, row.lag_bytes) == (0, len(log.segments) - 1, rolled)
        assert [failure.partition(" s ago: ")[2] for failure in found.failures] == [
            "injected: delete",
            "injected: copy",
        ]
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        fixture.retain_locally()
        found = state(fixture)
        assert found is not None
        assert found.partitions == {0: RemotePartitionRow(log.segments.base_offsets[0], rolled, 0, 0)}
        assert len(found.failures) == 2, "they stay, with their age"

    fixture.play(scenario)


def test_follower_has_only_the_local_start() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(led_topic("t", 1, leader=OTHER, replicas=(OTHER, NODE_ID)))
        found = state(fixture)
        assert found is not None
        assert found.partitions == {0: RemotePartitionRow(0, None, None, None)}
        assert found.failures == []

    fixture.play(scenario)


def test_topic_that_is_not_tiered_has_no_remote_part() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(remote_storage_enable="false")
        assert state(fixture) is None

    fixture.play(scenario)


def test_pages_show_failures_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    settings = {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": str(store),
        "remote.log.manager.task.interval.ms": "200",
    }
    with console(settings) as running:
        client, browser = running.broker.client, Browser(running.port)
        client.create_topic("plain", 1)
        client.create_topic("tiered", 1, settings={"remote.storage.enable": "true", "internal.segment.bytes": "1000"})
        assert "Warnings" not in browser.get("/").text
        assert "Remote size" not in browser.get("/topic?name=plain").text
        assert "First local offset Remote size Segments to copy Bytes to copy" in browser.get("/topic?name=tiered").text
        store.rmdir()
        store.write_bytes(b"")
        live = HTTPConnection("127.0.0.1", running.port, timeout=60)
        live.request("GET", "/live/topic?name=tiered", headers={"Host": f"127.0.0.1:{running.port}"})
        response = live.getresponse()
        running.broker.produce("tiered", *("x" * 400 for _ in range(9)))
        while "Copies to the remote store failed" not in next_event(response, "live"):
            pass
        live.close()
        assert "Copies to the remote store fail, for topic tiered: " in browser.get("/").text
