"""Download of a snapshot from the leader when this node's log ends below the leader's log start offset (R-234).

Loaded at the first download.
Source: ``KafkaRaftClient.handleFetchSnapshotResponse``, ``FileRawSnapshotWriter.java`` (apache/kafka 4.3.1; KIP-630).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import closing

from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId, freeze_snapshot, read_snapshot
from ottla.controller.raft.messages.conversion_types import DecodedRaftResponse
from ottla.controller.raft.state_machine.events import FetchSnapshot, RaftFetchSnapshotResponse, ReplicaKey
from ottla.env.env import Env, ThreadPool
from ottla.jobs.time_slice import run_in_background
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.wire.errors import ErrorCode

logger = logging.getLogger("ottla.controller")

RETRY_S = 0.02
"""Pause in seconds after a FetchSnapshot without a usable response (``retry.backoff.ms``)."""
CORRUPT_RETRY_S = 1.0
"""Pause in seconds after a complete snapshot turned out to be corrupt, before it is downloaded again."""

SendFetchSnapshot = Callable[[FetchSnapshot], Awaitable[DecodedRaftResponse | None]]
"""Function that sends a FetchSnapshot to the leader; returns None if there is no response."""


async def fetch_snapshot(
    env: Env,
    directory: str,
    me: ReplicaKey,
    epoch: int,
    name: SnapshotId,
    send: SendFetchSnapshot,
    is_wanted: Callable[[], bool],
) -> SnapshotContents | None:
    """Download a snapshot from the leader into ``directory``; return its contents, None once it is not wanted.

    Failed requests and corrupt snapshots are retried. The log is unchanged.

    ``me``: replica key of this node, sent in the requests. ``epoch``: leader epoch of the requests. ``send``: sends a
    FetchSnapshot to the leader. ``is_wanted``: False ends the download, for example after a change of the leader.

    Raises:
        OSError: the disk failed, or the process is short of descriptors or memory.
    """
    path = f"{directory}/{name.file_name}"
    while is_wanted():
        if not await _download(env, path, FetchSnapshot(me, epoch, name, 0), send, is_wanted):
            return None
        try:
            return await run_in_background(env, read_snapshot(env.disk, path))
        except CorruptFile as error:
            logger.warning("Fetching KRaft snapshot from the leader failed, retrying: %s", error)
            env.disk.unlink(path)
            await env.sleep(CORRUPT_RETRY_S)
    return None


async def _download(
    env: Env, path: str, request: FetchSnapshot, send: SendFetchSnapshot, is_wanted: Callable[[], bool]
) -> bool:
    """Download a snapshot to ``path`` durably, chunk by chunk; return False if it is not wanted any more."""
    part = path + ".part"
    if env.disk.exists(part):
        env.disk.unlink(part)
    with closing(env.disk.open(part, create=True, mode=0o400)) as file:
        while True:
            decoded = await send(request)
            if not is_wanted():
                return False
            answer = None if decoded is None else decoded.response
            raw = b"" if decoded is None or decoded.records is None else decoded.records
            right = isinstance(answer, RaftFetchSnapshotResponse) and answer.error == ErrorCode.NONE
            if not right or len(raw) == 0:
                await env.sleep(RETRY_S)
                continue
            assert isinstance(answer, RaftFetchSnapshotResponse)
            file.pwrite(raw, request.position)
            request = request._replace(position=request.position + len(raw))
            if request.position >= answer.size_bytes:
                await env.in_thread(file.fsync, ThreadPool.FILES)
                break
    await env.in_thread(lambda: freeze_snapshot(env.disk, path), ThreadPool.FILES)
    return True
