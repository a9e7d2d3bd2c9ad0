"""Startup of a node: warnings about unauthenticated listeners."""

from __future__ import annotations

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.cli.node_setup.serve_node import unauthenticated_listener_warnings

MAP = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"


@pytest.mark.parametrize(
    ("listeners", "warns"),
    [
        ("PLAINTEXT://127.0.0.1:9092", False),
        ("PLAINTEXT://localhost:9092,CONTROLLER://:9093", False),
        ("PLAINTEXT://:9092", True),
        ("PLAINTEXT://0.0.0.0:9092", True),
        ("PLAINTEXT://10.0.0.1:9092", True),
        ("SASL_SSL://:9092", False),
        ("SASL_SSL://:9092,PLAINTEXT://127.0.0.2:9094", False),
        ("SASL_SSL://:9092,PLAINTEXT://here.org:9094", True),
    ],
)
def test_unauthenticated_listener_on_public_address_logs_one_warning(listeners: str, warns: bool) -> None:
    config = NodeConfig({"listeners": listeners, "listener.security.protocol.map": MAP})
    config.host, config.port = config.first_listener
    assert len(unauthenticated_listener_warnings(config)) == (1 if warns else 0)
