"""Page of the connections to this node, of clients and of other nodes."""

from __future__ import annotations

from typing import Any

from ottla.broker.quotas.client_quotas import QuotaUsage
from ottla.console.page import PageRequest, View
from ottla.console.pages.frames import API_NAMES, may_capture, number_connections
from ottla.console.paging import paginate
from ottla.console.rendering import format_count, format_size
from ottla.controller.control.client_quotas import CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST
from ottla.controller.metadata.acl import AclOperation, ResourceType

NO_QUOTAS = "need DESCRIBE_CONFIGS on the cluster"
_QUOTA_NAMES = {
    PRODUCE: ("produce", "bytes"),
    FETCH: ("fetch", "bytes"),
    REQUEST: ("request time", "%"),
    CONTROLLER_MUTATION: ("topic changes", "partitions"),
}
_SEARCHED = ("host", "listener", "principal", "client_id", "software", "api_versions", "last_error")


def describe_quota(usage: QuotaUsage) -> str:
    """Return a quota with its unit and the rate now, if it is known, such as ``produce 1.0 MiB/s (now 0.5 MiB/s)``."""
    name, unit = _QUOTA_NAMES.get(usage.key, (usage.key, ""))
    limit, rate = (_format_quota(value, unit) for value in (usage.limit, usage.rate))
    return f"{name} {limit}" if usage.rate is None else f"{name} {limit} (now {rate})"


def _format_quota(value: float | None, unit: str) -> str:
    if unit == "bytes":
        return f"{format_size(value)}/s"
    return f"{format_count(value)} % of a thread" if unit == "%" else f"{format_count(value)} partitions/s"


async def get_connections(page: PageRequest) -> View:
    """Return the page of connections that match the query ``q``, sorted by host and client id, or one without a table.

    The latter if the session lacks DESCRIBE on the cluster.
    """
    values: dict[str, Any] = {
        "title": "Connections",
        "rows": None,
        "paging": None,
        "q": "",
        "shows_frames": False,
        "apis": list(API_NAMES),
    }
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("connections.html", values)
    wanted, now_ms = page.fields.get("q", "").strip().lower(), page.node.local.env.monotonic_ms()
    every = [
        {"number": number, **connection.describe(now_ms)._asdict()} for number, connection in number_connections(page)
    ]
    if wanted:
        every = [row for row in every if any(wanted in str(row[name]).lower() for name in _SEARCHED)]
    every.sort(key=lambda row: (row["host"], row["client_id"], row["number"]))
    rows, paging = paginate(page, every)
    quotas = page.node.local.services.quota_holder.quotas
    shows_quotas = page.client.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    for row in rows:
        connection = page.node.connection_numbers.find(row["number"])
        row["byte_counts"] = None if connection is None else connection.byte_counts()
        usages = [] if quotas is None else quotas.describe(row["principal"], row["client_id"])
        row["quotas"] = [describe_quota(usage) for usage in usages] if shows_quotas else [NO_QUOTAS]
    values |= {"rows": rows, "paging": paging, "q": wanted, "shows_frames": may_capture(page)}
    return View("connections.html", values)
