"""pytest fixtures: a broker for the run, a topic and a group of its own for each test.

Safe under pytest-xdist: each worker has a broker of its own. ``OTTLA_TEST_BOOTSTRAP=HOST:PORT`` runs the same tests on
another cluster, a real Kafka among them. Topics and groups are deleted after the test.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.client.cluster_client import ClusterClient
    from ottla.cluster import Cluster
    from ottla.embedded import Broker

EXTERNAL = "OTTLA_TEST_BOOTSTRAP"
"""No other variable names the cluster of tests: `OTTLA_BOOTSTRAP` is the command line's, and may name one in use."""


def pytest_report_header() -> str:
    """Return the line of pytest's header that names the cluster."""
    address = os.environ.get(EXTERNAL)
    return f"ottla: cluster {address} ({EXTERNAL})" if address else "ottla: embedded broker"


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker | None]:
    """The embedded broker; None where ``OTTLA_TEST_BOOTSTRAP`` names another cluster."""
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


def _ask(bootstrap: str, work: Callable[[ClusterClient], Awaitable[Any]]) -> Any:
    """Return the result of something that is done with a client of the cluster."""
    # lazy: 100.3 ms, 7544 kB
    import trio

    from ottla.client.cluster_client import ClusterClient
    from ottla.runtime.real_env import RealEnv

    async def main() -> Any:
        client = ClusterClient(RealEnv(), bootstrap, timeout_s=30)
        try:
            return await work(client)
        finally:
            client.close()

    return trio.run(main)


@pytest.fixture
def kafka_topic(kafka_bootstrap: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh topic of one partition, named after the test, and deleted after it."""
    # lazy: 100.3 ms, 7544 kB
    from ottla.wire.errors import ErrorCode
    from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    name = _fresh(request, "topic")
    made = _ask(kafka_bootstrap, lambda c: c.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 30_000)))
    code: int = made.topics[0].error_code
    assert code == 0, f"topic {name}: {ErrorCode(code).name}"
    yield name
    request_to_delete = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=30_000)
    try:
        gone = _ask(kafka_bootstrap, lambda c: c.call(request_to_delete, 6))
        code = gone.responses[0].error_code
    except OSError as error:
        warnings.warn(f"topic {name} was not deleted: {error}", stacklevel=1)
        return
    if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        warnings.warn(f"topic {name} was not deleted: {ErrorCode(code).name}", stacklevel=1)


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> Iterator[str]:
    """A group id that no other test has; on another cluster, the group is deleted after the test."""
    name = _fresh(request, "group")
    yield name
    if os.environ.get(EXTERNAL):
        _delete_group(os.environ[EXTERNAL], name)


def _delete_group(bootstrap: str, name: str) -> None:
    """Delete a group; one that still has a member stays, with a warning."""
    # lazy: 100.3 ms, 7544 kB
    from ottla.wire.errors import ErrorCode, ProtocolError, WireError
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest
    from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

    async def delete(client: ClusterClient) -> int:
        await client.metadata([])
        row = (await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))).coordinators[0]
        if row.error_code:
            return int(row.error_code)
        channel = await client.broker(row.node_id)
        return int((await channel.call(DeleteGroupsRequest([name]))).results[0].error_code)

    try:
        code = _ask(bootstrap, delete)
    except (OSError, ProtocolError, WireError) as error:
        warnings.warn(f"group {name} was not deleted: {error}", stacklevel=1)
        return
    if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        warnings.warn(f"group {name} was not deleted: {ErrorCode(code).name}", stacklevel=1)


def _fresh(request: pytest.FixtureRequest, kind: str) -> str:
    """Return a legal name that names the test."""
    own = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in request.node.name)
    return f"{own[:150]}-{kind}-{uuid.uuid4().hex[:12]}"
