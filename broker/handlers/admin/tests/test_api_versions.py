"""ApiVersions: names of client software."""

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
def test_client_software_name_is_validated(name: str, is_fine: bool) -> None:
    """The name is checked before authentication: one of a megabyte would delay all other clients."""
    peer = SimpleNamespace(software_name="unknown", software_version="unknown")
    services = SimpleNamespace(metadata=SimpleNamespace(kraft_version=1), config=NodeConfig())
    context: Any = SimpleNamespace(version=3, peer=peer, image=MetadataImage(), apis={}, services=services)
    answer: Any = handle(context, ApiVersionsRequest(name, "1"))
    assert answer.error_code == (0 if is_fine else ErrorCode.INVALID_REQUEST)
    assert peer.software_name == (name if is_fine else "unknown")


@pytest.mark.parametrize("listener", [None, "127.0.0.1:9999"])
def test_telemetry_apis_are_advertised_only_with_metrics_listener(listener: str | None) -> None:
    config = NodeConfig({} if listener is None else {"ottla.metrics.listener": listener})
    services = SimpleNamespace(metadata=SimpleNamespace(kraft_version=1), config=config)
    context: Any = SimpleNamespace(
        version=4, peer=SimpleNamespace(), image=MetadataImage(), apis=BROKER_APIS, services=services
    )
    answer: Any = handle(context, ApiVersionsRequest("a", "1"))
    response = {row.api_key for row in answer.api_keys}
    assert set(BROKER_APIS) - response == (set() if listener else {71, 72})
