"""A snapshot of the leader's, brought here part by part where this log ends below what the leader still has (R234).

Loaded when there is one to fetch.
Source: ``KafkaRaftClient.handleFetchSnapshotResponse``, ``FileRawSnapshotWriter.java`` (apache/kafka 4.3.1; KIP-630).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ottla.controller.pacing import paced
from ottla.controller.raft.events import FetchSnapshot, ReplicaKey, SnapshotAnswer
from ottla.controller.raft.wire_values import Heard
from ottla.controller.snapshots import Snapshot, SnapshotId, finish_part, reading
from ottla.log.checkpoints import CorruptFile
from ottla.wire.errors import ErrorCode
from ottla.world.env import Env, Lane

logger = logging.getLogger("ottla.controller")

RETRY_S = 0.02
"""After a part that did not come (``retry.backoff.ms``)."""
DAMAGED_S = 1.0
"""After a snapshot that came whole and cannot be read."""

Ask = Callable[[FetchSnapshot], Awaitable[Heard | None]]
"""Asks the leader; None where there is no answer."""


async def fetch_snapshot(
    env: Env, directory: str, me: ReplicaKey, epoch: int, name: SnapshotId, ask: Ask, is_wanted: Callable[[], bool]
) -> Snapshot | None:
    """Fetch a snapshot and put it under its name; gives what it holds, or None where it is not wanted any more.

    Raises:
        OSError: the disk failed.
    """
    path = f"{directory}/{name.file_name}"
    while is_wanted():
        if not await _bring(env, path, FetchSnapshot(me, epoch, name, 0), ask, is_wanted):
            return None
        try:
            return await paced(reading(env.disk, path))
        except CorruptFile as error:
            logger.warning("the leader's snapshot is asked for again: %s", error)
            env.disk.unlink(path)
            await env.sleep(DAMAGED_S)
    return None


async def _bring(env: Env, path: str, request: FetchSnapshot, ask: Ask, is_wanted: Callable[[], bool]) -> bool:
    """Fetch the bytes of a snapshot; says whether it came whole."""
    part = path + ".part"
    if env.disk.exists(part):
        env.disk.unlink(part)
    file = env.disk.open(part, create=True, mode=0o400)
    try:
        while True:
            heard = await ask(request)
            if not is_wanted():
                return False
            answer = None if heard is None else heard.answer
            raw = b"" if heard is None or heard.records is None else heard.records
            right = isinstance(answer, SnapshotAnswer) and answer.error == ErrorCode.NONE
            if not right or len(raw) == 0:
                await env.sleep(RETRY_S)
                continue
            assert isinstance(answer, SnapshotAnswer)
            file.pwrite(raw, request.position)
            request = request._replace(position=request.position + len(raw))
            if request.position >= answer.size_bytes:
                await env.in_thread(file.fsync, Lane.FILES)
                break
    finally:
        file.close()
    await env.in_thread(lambda: finish_part(env.disk, path), Lane.FILES)
    return True
