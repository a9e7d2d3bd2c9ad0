"""Failures of threads for calls of the remote store, which end no other task of the broker."""

from __future__ import annotations

import trio

from ottla.broker.remote_log.tests.remote_log_manager_fixture import ROUND_S, ManagerFixture


def test_deletion_of_remote_segments_without_a_thread_is_repeated() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        assert fixture.store.objects
        fixture.env.has_threads = False
        fixture.commit_topics(gone=("t",))
        await trio.sleep(ROUND_S)
        assert fixture.store.objects
        fixture.env.has_threads = True
        await trio.sleep(2 * ROUND_S)
        assert not fixture.store.objects

    fixture.play(scenario)


def test_failed_read_ahead_is_not_repeated() -> None:
    fixture = ManagerFixture()
    done: list[bool] = []

    def fail() -> None:
        done.append(False)
        raise ValueError("injected")

    async def scenario() -> None:
        fixture.read_ahead(fail)
        await trio.sleep(1)
        fixture.env.has_threads = False
        fixture.read_ahead(fail)
        await trio.sleep(1)
        fixture.env.has_threads = True
        fixture.read_ahead(lambda: done.append(True))
        await trio.sleep(ROUND_S)

    fixture.play(scenario)
    assert done == [False, True]
