"""ApiVersions: what a client says of its software."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_SOFTWARE_CHARS
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.handlers.admin.api_versions import handle
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest


@pytest.mark.behaviour("S-312")
@pytest.mark.parametrize(
    ("name", "is_fine"),
    [
        ("a", True),
        ("apache-kafka-java.4", True),
        ("a" * MAX_SOFTWARE_CHARS, True),
        ("", False),
        ("-a", False),
        ("a b", False),
        ("a" * (MAX_SOFTWARE_CHARS + 1), False),
    ],
)
def test_a_name_is_letters_digits_hyphens_and_dots_and_not_too_many(name: str, is_fine: bool) -> None:
    """It is looked at before anybody logged in: one of a megabyte would hold up everybody else."""
    peer = SimpleNamespace(software_name="unknown", software_version="unknown")
    services = SimpleNamespace(metadata=SimpleNamespace(kraft_version=1), config=NodeConfig())
    context: Any = SimpleNamespace(version=3, peer=peer, image=MetadataImage(), apis={}, services=services)
    answer: Any = handle(context, ApiVersionsRequest(name, "1"))
    assert answer.error_code == (0 if is_fine else ErrorCode.INVALID_REQUEST)
    assert peer.software_name == (name if is_fine else "unknown")


@pytest.mark.parametrize("listener", [None, "127.0.0.1:9999"])
def test_clients_are_told_to_push_their_metrics_only_where_there_is_a_metrics_page(listener: str | None) -> None:
    config = NodeConfig({} if listener is None else {"ottla.metrics.listener": listener})
    services = SimpleNamespace(metadata=SimpleNamespace(kraft_version=1), config=config)
    context: Any = SimpleNamespace(
        version=4, peer=SimpleNamespace(), image=MetadataImage(), apis=BROKER_APIS, services=services
    )
    answer: Any = handle(context, ApiVersionsRequest("a", "1"))
    told = {row.api_key for row in answer.api_keys}
    assert set(BROKER_APIS) - told == (set() if listener else {71, 72})
