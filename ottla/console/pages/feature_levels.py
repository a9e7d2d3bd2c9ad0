"""Part of the cluster's page: feature levels of the cluster, and those that each node has registered."""

from __future__ import annotations

from typing import Any

from ottla.console.page import PageRequest
from ottla.controller.bootstrap_features import RELEASES
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.record_serde import KRAFT_VERSION, METADATA_VERSION


def describe_features(page: PageRequest) -> dict[str, Any] | None:
    """Return the feature levels in use, and the supported ones by node; None if the session may not see them.

    It needs DESCRIBE on the cluster. Keys: ``names`` of the features, metadata.version first; ``in_use``, a text for
    each of them, empty if it is not in use; and ``nodes``: a row for each registered node with ``node`` (its id) and
    ``ranges``, a text for each feature, empty if the node has not registered it. The metadata may be a little older
    than that of the active controller.
    """
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return None
    image = page.node.components.replica_manager.image
    levels = {**image.features, KRAFT_VERSION: page.node.local.services.metadata.kraft_version}
    registrations: dict[int, Any] = {**image.controllers, **image.brokers}
    registered = {
        node: {row.name: (row.min_supported_version, row.max_supported_version) for row in registrations[node].features}
        for node in sorted(registrations)
    }
    names = sorted({*levels, *(name for rows in registered.values() for name in rows)})
    names.sort(key=lambda name: name != METADATA_VERSION)
    return {
        "names": names,
        "in_use": [_level_text(name, levels[name]) if levels.get(name, 0) > 0 else "" for name in names],
        "nodes": [
            {"node": node, "ranges": [_range_text(name, rows[name]) if name in rows else "" for name in names]}
            for node, rows in registered.items()
        ],
    }


def _level_text(feature: str, level: int) -> str:
    """Return a level, with the release of Kafka that introduced it for a known level of metadata.version."""
    release = RELEASES.get(level) if feature == METADATA_VERSION else None
    return str(level) if release is None else f"{level} ({release})"


def _range_text(feature: str, supported: tuple[int, int]) -> str:
    return " to ".join(_level_text(feature, level) for level in supported)
