"""Page with the list of groups: type, state, number of members, and lag of each group of the shown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.client.channel import Channel
from ottla.console.offsets import LATEST, TopicPartitionName, list_offsets
from ottla.console.page import PageRequest, View
from ottla.console.pages.groups import CLASSIC, describe_groups, fetch_positions, load_leaders, sum_lags
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest

MAX_LAG_PARTITIONS = 10_000
"""Maximum number of partitions whose end offsets are requested for a page; groups beyond have no lag."""
_LIST_VERSION = 5
_DESCRIBED_AT_ONCE = 10
"""Number of groups in a request that describes them; it bounds the size of a response."""
_ENDS_AT_ONCE = 500
"""Number of partitions in a request for end offsets: about 2 ms of the event loop."""
LocatedGroup = tuple[ListedGroup, int]
"""Group and node id of its coordinator."""
Positions = dict[TopicPartitionName, int]


async def list_groups(page: PageRequest) -> tuple[list[LocatedGroup], list[int]]:
    """Return the groups that the session may describe, sorted by id, and the ids of brokers that did not respond."""
    own, env = page.node.local.node_id, page.node.local.env
    response = await page.client.call(ListGroupsRequest(), _LIST_VERSION)
    found, silent = [(group, own) for group in response.groups], []
    for node in await page.client.brokers():
        if node == own:
            continue
        try:
            remote = await page.node.local.call_remote(node, ListGroupsRequest(), _LIST_VERSION)
        except (OSError, WireError):
            silent.append(node)
            continue
        found += [(group, node) for group in await run_in_background(env, _find_visible(page, remote.groups))]
    found.sort(key=lambda row: row[0].group_id)
    return found, silent


def _find_visible(page: PageRequest, groups: Sequence[ListedGroup]) -> Job[list[ListedGroup]]:
    """Return the groups that the session may describe, as a job."""
    if page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return list(groups)
    out = []
    for group in groups:
        if page.client.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            out.append(group)
        yield None
    return out


async def get_groups(page: PageRequest) -> View:
    """Return the page with the list of groups whose id contains the query ``q``, in any case; all groups without ``q``.

    It is the live block of the page, too. The groups are those that the session may describe. The page names the
    brokers that did not respond, whose groups are not in the list.
    """
    wanted = page.fields.get("q", "").strip().lower()
    every, silent = await list_groups(page)
    shown, paging = paginate(page, [row for row in every if wanted in row[0].group_id.lower()])
    rows = await describe_listed_groups(page, shown)
    values = {"title": "Groups", "rows": rows, "paging": paging, "q": wanted, "silent": silent}
    return View("groups.html", values)


async def describe_listed_groups(page: PageRequest, groups: Sequence[LocatedGroup]) -> list[dict[str, Any]]:
    """Return a row for each of the groups of a page, in their order; the client must know the brokers.

    Keys: ``id``, ``type``, ``state``, ``protocol``, ``members`` (their number) and ``lag`` (in records). The latter two
    are None if they are not known: the coordinator does not respond or refuses the request, as for a session that may
    not describe the topics. Groups have no lag either once `MAX_LAG_PARTITIONS` are reached.
    """
    members: dict[str, int] = {}
    positions: dict[str, Positions] = {}
    for node in {node for _, node in groups}:
        try:
            channel = await page.client.broker(node)
        except (ProtocolError, OSError):
            continue  # such as a fenced broker, which Metadata omits
        for kind, ids in _ids_by_type(page, groups, node):
            try:
                members |= await _count_members(channel, kind, ids)
                for group in ids:
                    positions[group] = await _find_positions(channel, kind, group)
            except (OSError, WireError):
                break  # the rest would not be answered either
    lags = await _compute_lags(page, {group.group_id: positions.get(group.group_id, {}) for group, _ in groups})
    return [
        {
            "id": group.group_id,
            "type": group.group_type,
            "state": group.group_state,
            "protocol": group.protocol_type,
            "members": members.get(group.group_id),
            "lag": lags.get(group.group_id),
        }
        for group, _ in groups
    ]


def _ids_by_type(page: PageRequest, groups: Sequence[LocatedGroup], node: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the ids of the groups that a node coordinates by type, at most `_DESCRIBED_AT_ONCE` at once.

    Groups that the session may not describe, and the empty id, are left out: an error row keeps the client from
    forwarding the request to the coordinator.
    """
    by_type: dict[str, list[str]] = {}
    for group, coordinator in groups:
        may_describe = page.client.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        if coordinator == node and group.group_id and may_describe:
            by_type.setdefault(group.group_type or CLASSIC, []).append(group.group_id)
    for kind, ids in by_type.items():
        for start in range(0, len(ids), _DESCRIBED_AT_ONCE):
            yield kind, ids[start : start + _DESCRIBED_AT_ONCE]


async def _count_members(channel: Channel, kind: str, ids: list[str]) -> dict[str, int]:
    """Return the number of members of each group that the coordinator describes."""
    rows = await describe_groups(channel, kind, ids)
    return {row.group_id: len(row.members) for row in rows if not row.error_code}


async def _find_positions(channel: Channel, kind: str, group: str) -> Positions:
    """Return the positions of a group; empty if the coordinator refuses the request."""
    try:
        return await fetch_positions(channel, kind, group)
    except ProtocolError:
        return {}


async def _compute_lags(page: PageRequest, positions: dict[str, Positions]) -> dict[str, int | None]:
    """Return the lag in records of each group by its positions; None if it is not known."""
    env = page.node.local.env
    counted, partitions = await run_in_background(env, _select_partitions(positions))
    await load_leaders(page, partitions)
    ends: Positions = {}
    for start in range(0, len(partitions), _ENDS_AT_ONCE):
        ends |= await list_offsets(page.client, partitions[start : start + _ENDS_AT_ONCE], LATEST)
    return await run_in_background(env, _sum_all_lags(counted, ends))


def _select_partitions(
    positions: dict[str, Positions],
) -> Job[tuple[dict[str, Positions], list[TopicPartitionName]]]:
    """Return the groups that have at most `MAX_LAG_PARTITIONS` in all, first ones first, and these, as a job."""
    counted: dict[str, Positions] = {}
    every: dict[TopicPartitionName, None] = {}
    for group, offsets in positions.items():
        new = [at for at in offsets if at not in every]
        if len(every) + len(new) <= MAX_LAG_PARTITIONS:
            counted[group] = offsets
            every.update(dict.fromkeys(new))
        yield None
    return counted, list(every)


def _sum_all_lags(positions: dict[str, Positions], ends: Positions) -> Job[dict[str, int | None]]:
    out = {}
    for group, offsets in positions.items():
        out[group] = sum_lags(offsets, ends)
        yield None
    return out
