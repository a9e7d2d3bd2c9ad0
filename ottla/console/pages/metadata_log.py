"""Page of the newest changes of the cluster's metadata."""

from __future__ import annotations

from ottla.console.page import PageRequest, View
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType


async def get_metadata_changes(page: PageRequest) -> View:
    """Return the page of the newest changes that the session may describe, or one without a table.

    The latter if the session lacks DESCRIBE on the cluster; changes of topics also require DESCRIBE on the topic.
    """
    values = {"title": "Metadata changes", "rows": None, "paging": None}
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("metadata_log.html", values)
    found = page.node.metadata_changes.newest()
    topics = {change.topic for change in found if change.topic}
    visible = {topic for topic in topics if page.client.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)}
    rows, paging = paginate(page, [change for change in found if not change.topic or change.topic in visible])
    return View("metadata_log.html", {**values, "rows": rows, "paging": paging})
