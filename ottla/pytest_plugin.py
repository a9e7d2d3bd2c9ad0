"""pytest fixtures: a broker for the run, a topic and a group of its own for each test.

Safe under pytest-xdist: each worker has a broker of its own. ``OTTLA_BOOTSTRAP=HOST:PORT`` runs the same tests on
another cluster, a real Kafka among them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.cluster import Cluster
    from ottla.embedded import Broker

EXTERNAL = "OTTLA_BOOTSTRAP"


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker | None]:
    """The embedded broker; None where ``OTTLA_BOOTSTRAP`` names another cluster."""
    if os.environ.get(EXTERNAL):
        yield None
        return
    # lazy: 182.5 ms, 12379 kB
    from ottla.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_broker: Broker | None) -> str:
    """``HOST:PORT`` for any client."""
    return os.environ[EXTERNAL] if kafka_broker is None else kafka_broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Cluster]:
    """Three nodes in processes of their own, which a test may kill and start again."""
    # lazy: 157.6 ms, 8262 kB
    from ottla.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka_bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A fresh topic of one partition, named after the test."""
    # lazy: 100.3 ms, 7544 kB
    import trio

    from ottla.client.cluster_client import ClusterClient
    from ottla.runtime.real_env import RealEnv
    from ottla.wire.errors import ErrorCode
    from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

    name = _fresh(request, "topic")

    async def create() -> int:
        client = ClusterClient(RealEnv(), kafka_bootstrap, timeout_s=30)
        try:
            answer = await client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000))
        finally:
            client.close()
        code: int = answer.topics[0].error_code
        return code

    code = trio.run(create)
    assert code == 0, f"topic {name}: {ErrorCode(code).name}"
    return name


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """A group id nobody else has."""
    return _fresh(request, "group")


def _fresh(request: pytest.FixtureRequest, kind: str) -> str:
    """A legal name that says whose it is."""
    own = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in request.node.name)
    return f"{own[:150]}-{kind}-{uuid.uuid4().hex[:12]}"
