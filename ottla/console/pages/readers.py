"""Page of readers by their fetch sessions: positions of consumers on this node, also of those that commit nothing."""

from __future__ import annotations

from typing import Any

from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.console.offsets import LATEST, list_offsets
from ottla.console.page import PageRequest, View
from ottla.console.pages.groups import load_leaders
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background

MAX_READERS = 10_000
"""Partitions of readers that are listed: the page must not copy those of all sessions."""


def _list_positions(sessions: FetchSessionCache, wanted: str, now_ms: float) -> Job[list[dict[str, Any]]]:
    """Return a row for each partition in the fetch sessions of consumers, at most `MAX_READERS`, as a job.

    Keys: ``client``, ``topic``, ``partition``, ``position`` (fetch offset), and ``idle_ms`` (since the last request).
    ``wanted``: text in lower case that the client id or the topic must contain; empty for all. Sessions of followers
    are left out. ``now_ms``: monotonic time.
    """
    rows: list[dict[str, Any]] = []
    for session in list(sessions):
        yield None
        if session.is_privileged:
            continue
        for part in list(session.partitions.values()):
            if part.topic is not None and (wanted in session.client_id.lower() or wanted in part.topic.lower()):
                if len(rows) == MAX_READERS:
                    return rows
                rows.append(
                    {
                        "client": session.client_id,
                        "topic": part.topic,
                        "partition": part.partition,
                        "position": part.fetch_offset,
                        "idle_ms": max(now_ms - session.last_used_ms, 0.0),
                    }
                )
    return rows


async def get_readers(page: PageRequest) -> View:
    """Return the page of readers whose client id or topic contains the query ``q``, or one without a table.

    The latter if the session lacks DESCRIBE on the cluster. Topics that it may not describe are left out.
    """
    values: dict[str, Any] = {"title": "Readers", "rows": None, "paging": None, "q": ""}
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("readers.html", values)
    env, wanted = page.node.local.env, page.fields.get("q", "").strip().lower()
    sessions = page.node.components.services.fetch_sessions
    every = await run_in_background(env, _list_positions(sessions, wanted, env.monotonic_ms()))
    topics = {row["topic"] for row in every}
    visible = {topic for topic in topics if page.client.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)}
    every = [row for row in every if row["topic"] in visible]
    every.sort(key=lambda row: (row["client"], row["topic"], row["partition"]))
    rows, paging = paginate(page, every)
    partitions = {(row["topic"], row["partition"]) for row in rows}
    await load_leaders(page, partitions)
    ends = await list_offsets(page.client, sorted(partitions), LATEST)
    for row in rows:
        row["end"] = ends.get((row["topic"], row["partition"]))
        row["lag"] = None if row["end"] is None else max(row["end"] - row["position"], 0)
    values |= {"rows": rows, "paging": paging, "q": wanted}
    return View("readers.html", values)
