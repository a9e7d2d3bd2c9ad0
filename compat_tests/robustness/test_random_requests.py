"""Random well-formed requests to brokers and controllers: every node stays alive, responds, and restarts.

``OTTLA_ODD`` is the duration in seconds (600 in the campaign); ``OTTLA_ODD_SEED`` is the seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from compat_tests.robustness.test_malformed_input import alive, rss_bytes
from compat_tests.support.random_requests import RandomRequestGenerator
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.broker.dispatch.api_registry import BROKER_APIS, CONTROLLER_APIS
from ottla.cluster import ClusterNode
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

SECONDS = float(os.environ.get("OTTLA_ODD", "6"))
SEED = int(os.environ.get("OTTLA_ODD_SEED", "1"))
PATIENCE_S = 0.3
"""Wait for a response. Some responses are late, and their client is closed when they arrive."""
BELIEVED = ApiKey.UPDATE_RAFT_VOTER
"""API left out: with valid ids, the quorum would use the address in the request for that voter."""
GROWTH_BYTES = 64 << 20
WORDS = (b"Traceback", b"unexpected error")
"""Texts that must not occur in the log of a node: each request gets a response or a deliberate close."""


class RandomRequestSender:
    """Sender of random requests to all listeners of all nodes."""

    def __init__(self, nodes: list[ClusterNode], seed: int) -> None:
        self._odd = RandomRequestGenerator(seed)
        self._nodes = nodes
        self._lines: dict[int, RawClient] = {}
        self.answered = 0
        self.last = ""

    def ask(self) -> None:
        """Send one request: any API in any version, to any node."""
        rng = self._odd.rng
        node = rng.choice(self._nodes)
        port, routes = rng.choice(
            ((node.port, BROKER_APIS), (node.port, BROKER_APIS), (node.controller_port, CONTROLLER_APIS))
        )
        key = rng.choice([key for key in routes if key is not BELIEVED])
        version = rng.randint(routes[key].oldest_supported or routes[key].min_version, routes[key].max_version)
        body = self._odd.generate(request_class(key), version)
        self.last = f"{key.name} v{version} to {node.port}, seed {SEED}: {body!r}"
        try:
            if port not in self._lines:
                self._lines[port] = RawClient(port, PATIENCE_S)
            answer = self._lines[port].call(key, version, body)
        except (TimeoutError, OSError):
            if port in self._lines:
                self._lines.pop(port).close()
            return
        self.answered += 1
        self._odd.learn_from(answer)
        if not getattr(answer, "error_code", 0):
            self._odd.learn_from(body)


def unexpected_lines(node: ClusterNode, offset: int) -> tuple[str, int]:
    """Return unexpected log lines of a node from a byte position on, and the end position."""
    with Path(node.log).open("rb") as log:
        log.seek(offset)
        text = log.read()
    found = any(word in text for word in WORDS)
    return (text.decode(errors="replace")[:6000] if found else ""), offset + len(text)


def answers(node: ClusterNode) -> bool:
    try:
        return alive(node)
    except OSError:
        return False


@pytest.fixture(params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[ottla.Cluster]:
    with ottla.Cluster(request.param) as out:
        yield out


def test_random_requests_end_no_node_and_each_restarts(cluster: ottla.Cluster) -> None:
    nodes = cluster.nodes
    line = RawClient(nodes[0].port)
    topics = [CreatableTopic(name, 3, len(nodes)) for name in ("t", "u")]
    line.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics, 5000))
    line.close()
    asking, offsets = RandomRequestSender(nodes, SEED), dict.fromkeys(nodes, 0)
    before = {node: rss_bytes(node.pid or 0) for node in nodes}
    until_s = time.monotonic() + SECONDS
    while time.monotonic() < until_s:
        asking.ask()
        for node in nodes:
            words, offsets[node] = unexpected_lines(node, offsets[node])
            assert not words, f"{asking.last}\n{words}"
            assert node.status is None, f"{asking.last}\n{Path(node.log).read_text(errors='replace')[-4000:]}"
    assert asking.answered > 5 * SECONDS
    for node in nodes:
        wait_until(lambda node=node: answers(node))  # type: ignore[misc]
        assert rss_bytes(node.pid or 0) < before[node] + GROWTH_BYTES
    for node in nodes:
        cluster.kill(node.id)
        cluster.restart(node.id)
    for node in nodes:
        wait_until(lambda node=node: answers(node))  # type: ignore[misc]
        assert not unexpected_lines(node, offsets[node])[0]
