"""Wait for brokers: nodes that lack a broker for some time, for ever, or reject the client."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.connection_security import NO_SECURITY
from ottla.client.tests.fake_brokers import FakeCluster, run_coroutine
from ottla.tools.cluster_readiness import BrokersUnknown, wait_for_brokers
from ottla.wire.codec.schema import Message
from ottla.wire.messages import metadata


class LateCluster(FakeCluster):
    """Fake brokers that name broker 1 only in their third Metadata response; ``sleep`` advances the clock."""

    def __init__(self) -> None:
        super().__init__(metadata=self.late_metadata)
        self.responses = 0

    def late_metadata(self, _request: Any, _version: int) -> Message:
        self.responses += 1
        known = (0, 1) if self.responses >= 3 else (0,)
        return metadata.MetadataResponse(brokers=[metadata.MetadataResponseBroker(n, f"b{n}", 9000) for n in known])

    def wait(self, *brokers: int) -> None:
        env: Any = SimpleNamespace(
            net=self, sleep=self.sleep, timeout=lambda _: nullcontext(), monotonic_ms=lambda: sum(self.slept) * 1000
        )
        run_coroutine(wait_for_brokers(env, ["b0:9000", "b1:9000"], brokers, NO_SECURITY, 5.0))


def test_wait_for_brokers_polls_each_server_until_all_are_named() -> None:
    cluster = LateCluster()
    cluster.wait(0, 1)
    assert (cluster.responses, len(cluster.slept)) == (4, 2)
    assert cluster.connected_addresses() == [("b0", 9000), ("b1", 9000)]
    assert all(stream.closed for _, _, stream in cluster.streams)


def test_wait_for_brokers_with_missing_broker_fails_at_the_deadline() -> None:
    cluster = LateCluster()
    with pytest.raises(BrokersUnknown, match=r"^the node at b0:9000 does not know brokers \[7\] after 5 s$"):
        cluster.wait(1, 7)
    assert sum(cluster.slept) == pytest.approx(5.0, abs=0.05)


def test_wait_for_brokers_skips_server_that_cannot_be_reached() -> None:
    cluster = LateCluster()
    cluster.down.add(("b0", 9000))
    cluster.wait(0, 1)
    assert cluster.connected_addresses() == [("b1", 9000)]
