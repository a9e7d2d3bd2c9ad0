"""Feature levels of the cluster and of its nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.console.pages.feature_levels import describe_features
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages.metadata_records import (
    BrokerFeature,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


def page(image: MetadataImage, *, may: bool = True, kraft_version: int = 1) -> Any:
    """Return a page request of a session with or without DESCRIBE on the cluster."""
    services = SimpleNamespace(metadata=SimpleNamespace(kraft_version=kraft_version))
    return SimpleNamespace(
        client=SimpleNamespace(may=lambda *_: may),
        node=SimpleNamespace(
            components=SimpleNamespace(replica_manager=SimpleNamespace(image=image)),
            local=SimpleNamespace(services=services),
        ),
    )


def image() -> MetadataImage:
    broker = RegisterBrokerRecord(2, features=[BrokerFeature("metadata.version", 7, 29), BrokerFeature("new", 0, 3)])
    controller = RegisterControllerRecord(1, features=[ControllerFeature("metadata.version", 7, 30)])
    return MetadataImage(
        features={"metadata.version": 29, "group.version": 1}, brokers={2: broker}, controllers={1: controller}
    )


def test_levels_have_a_column_for_each_feature_and_a_row_for_each_node() -> None:
    assert describe_features(page(image())) == {
        "names": ["metadata.version", "group.version", "kraft.version", "new"],
        "in_use": ["29 (4.2-IV1)", "1", "1", ""],
        "nodes": [
            {"node": 1, "ranges": ["7 to 30 (4.3-IV0)", "", "", ""]},
            {"node": 2, "ranges": ["7 to 29 (4.2-IV1)", "", "", "0 to 3"]},
        ],
    }


def test_kraft_version_zero_is_not_in_use() -> None:
    found = describe_features(page(image(), kraft_version=0))
    assert found is not None
    assert found["in_use"][2] == ""


def test_levels_need_describe_on_the_cluster() -> None:
    assert describe_features(page(image(), may=False)) is None
