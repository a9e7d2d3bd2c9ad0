"""Compose files for Apache Kafka's image start Ottla: the image's entry point as plain processes, in namespaces."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from compat_tests.cluster.network_namespaces import unavailable_reason
from compat_tests.container.compose_network import ComposeNetwork, load_services
from ottla.log.java_properties import load_settings

ENTRY = [sys.executable, "-m", "ottla.cli.main", "container"]
"""``ENTRYPOINT`` of packaging/Dockerfile, from the source tree."""
WITHIN_S = 60

pytestmark = [
    pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason()),
    pytest.mark.xdist_group("namespaces"),
]


def _wait_until_ready(network: ComposeNetwork, *names: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not all(network.is_ready(name) for name in names):
        assert time.monotonic() < deadline, "\n".join(network.log(name)[-1000:] for name in names)
        time.sleep(0.05)


@pytest.mark.parametrize("example", ["combined", "isolated"])
def test_compose_file_for_kafkas_image_starts_and_restarts_a_cluster(example: str, tmp_path: Path) -> None:
    services = load_services(Path(__file__).with_name(f"{example}.yml"))
    with ComposeNetwork(services, tmp_path, ENTRY) as network:
        for name in services:
            network.start(name)
        _wait_until_ready(network, *services)
        assert network.run_on_host("compat_tests.container.published_ports", "events", "100").strip() == "100"
        ids = {load_settings((network.data(name) / "meta.properties").read_bytes())["cluster.id"] for name in services}
        assert ids == {"4L6g3nShT-eMCtK--X86sw"}
        assert network.stop("kafka-1") == 0
        network.stop("kafka-2", signal.SIGKILL)
        for name in ("kafka-1", "kafka-2"):
            (tmp_path / f"{name}.log").write_text("")
            network.start(name)
        _wait_until_ready(network, "kafka-1", "kafka-2")
        assert "formatting" not in network.log("kafka-1"), "the directory was formatted already"
        assert network.run_on_host("compat_tests.container.published_ports", "events", "1").strip() == "101"
        assert not [name for name in services if "Traceback" in network.log(name)]
