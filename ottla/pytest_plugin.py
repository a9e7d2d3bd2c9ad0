"""pytest fixtures: an embedded broker, a cluster, a new topic and group for each test, faults and the broker's clock.

The broker is one for the session, unless the option ``ottla_scope`` sets another scope; each worker of pytest-xdist has
its own. ``OTTLA_TEST_BOOTSTRAP=HOST:PORT`` runs the tests against another cluster, such as Apache Kafka, in place of
the embedded broker. Topics are deleted after the test; groups only in another cluster.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import pytest

if TYPE_CHECKING:
    from ottla.cluster import Cluster
    from ottla.embedded import Broker
    from ottla.tools.blocking_client import BlockingClient
    from ottla.tools.fault_client import Faults, NodeClock

    class TopicFactory(Protocol):
        """Type of the function that the fixture `kafka_topic_factory` yields."""

        def __call__(
            self, partitions: int | None = None, *, name: str | None = None, settings: Mapping[str, Any] | None = None
        ) -> str:
            """Create a topic and return its name."""


EXTERNAL = "OTTLA_TEST_BOOTSTRAP"
"""Variable with the bootstrap servers of an external test cluster. `OTTLA_BOOTSTRAP` is ignored, since it belongs to
the command line and may name a production cluster.
"""
SCOPES = ("session", "package", "module", "class", "function")
Scope = Literal["session", "package", "module", "class", "function"]
_OPTIONS: tuple[tuple[str, str, Any, str], ...] = (
    ("ottla_scope", "string", "session", f"scope of the embedded broker: {', '.join(SCOPES)}"),
    ("ottla_settings", "linelist", [], "settings of the embedded broker and of kafka_cluster, KEY=VALUE on each line"),
    ("ottla_partitions", "string", "1", "number of partitions of kafka_topic"),
    ("ottla_tls", "bool", False, "the embedded broker uses TLS"),
    ("ottla_sasl", "string", "", "the embedded broker requires a login: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"),
    ("ottla_isolate", "bool", False, "the embedded broker runs in a separate process"),
    ("ottla_nodes", "string", "3", "number of nodes of kafka_cluster"),
)
_MARKER = "kafka_topic(partitions=N, settings={...}): partitions and settings of the topic of the fixture kafka_topic"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini options ``ottla_*`` of ``pytest.ini`` or ``pyproject.toml``."""
    for name, kind, default, text in _OPTIONS:
        parser.addini(name, text, cast("Any", kind), default)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``kafka_topic``, and check scope, numbers, and the form of the lines of settings.

    Other invalid values fail at the start of the broker or cluster.

    Raises:
        UsageError: the check fails.
    """
    config.addinivalue_line("markers", _MARKER)
    _scope("", config)
    _settings(config)
    _number(config, "ottla_partitions")
    _number(config, "ottla_nodes")


def pytest_report_header() -> str:
    """Return the line of pytest's header that names the cluster under test."""
    address = os.environ.get(EXTERNAL)
    return f"ottla: cluster {address} ({EXTERNAL})" if address else "ottla: embedded broker"


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    """Return the scope of the fixtures of the embedded broker, from the option ``ottla_scope``; called by pytest.

    Raises:
        UsageError: the option has another value than `SCOPES`.
    """
    value = config.getini("ottla_scope")
    if value not in SCOPES:
        raise pytest.UsageError(f"ottla_scope: {value} (choose from {', '.join(SCOPES)})")
    return cast("Scope", value)


def _number(config: pytest.Config, name: str) -> int:
    """Return the value of an option that is a number of 1 or more.

    Raises:
        UsageError: the value is not such a number.
    """
    text = config.getini(name)
    if not str(text).isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"{name}: number of 1 or more expected: {text}")
    return int(text)


def _settings(config: pytest.Config) -> dict[str, str]:
    """Return the broker settings of the option ``ottla_settings``, lines of ``KEY=VALUE``, by their keys.

    Raises:
        UsageError: a line has no equals sign.
    """
    out = {}
    for item in config.getini("ottla_settings"):
        key, separator, value = item.partition("=")
        if not separator:
            raise pytest.UsageError(f"ottla_settings: KEY=VALUE expected: {item}")
        out[key.strip()] = value.strip()
    return out


@pytest.fixture(scope=_scope)
def kafka_broker_options(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Arguments of the embedded `ottla.Broker`. Override this fixture to change them."""
    return {
        "settings": _settings(pytestconfig),
        "tls": pytestconfig.getini("ottla_tls"),
        "sasl": pytestconfig.getini("ottla_sasl") or None,
        "isolate": pytestconfig.getini("ottla_isolate"),
    }


@pytest.fixture(scope=_scope)
def kafka_broker(kafka_broker_options: dict[str, Any]) -> Iterator[Broker | None]:
    """Start the embedded broker, yield it, and stop it; None if ``OTTLA_TEST_BOOTSTRAP`` names another cluster."""
    if os.environ.get(EXTERNAL):
        yield None
        return
    # lazy: 182.5 ms, 12379 kB
    from ottla.embedded import Broker

    with Broker(**kafka_broker_options) as broker:
        yield broker


@pytest.fixture(scope=_scope)
def kafka_client(kafka_broker: Broker | None) -> BlockingClient:
    """Client of the cluster under test: ``produce``, ``records``, ``expect``, ``wait_for``, ``create_topic``.

    The tests that use it fail if an external cluster cannot be reached.
    """
    if kafka_broker is not None:
        return kafka_broker.client
    # lazy: 47.0 ms, 2865 kB
    from ottla.tools.blocking_client import BlockingClient

    client = BlockingClient(os.environ[EXTERNAL])
    try:
        client.check_connection()
    except (OSError, ValueError) as error:
        pytest.fail(f"{EXTERNAL}={os.environ[EXTERNAL]}: {error}", pytrace=False)
    return client


@pytest.fixture
def kafka_faults(kafka_broker: Broker | None) -> Iterator[Faults]:
    """Yield the faults of the embedded broker, which are removed after the test; skip the test without such a broker.

    The test fails without ``ottla.faults=true``.
    """
    faults = _with_faults(kafka_broker).faults
    yield faults
    faults.clear()


@pytest.fixture
def kafka_clock(kafka_broker: Broker | None) -> NodeClock:
    """Clock of the embedded broker, which stays advanced after the test; without such a broker the test is skipped.

    The test fails without ``ottla.faults=true``.
    """
    return _with_faults(kafka_broker).clock


def _with_faults(broker: Broker | None) -> Broker:
    """Return the embedded broker; skip the test without one, and fail it if ``ottla.faults`` is not set."""
    if broker is None:
        pytest.skip(f"{EXTERNAL} names a cluster without fault injection")
    if broker.settings.get("ottla.faults") != "true":
        pytest.fail("ottla.faults=true is missing in the option ottla_settings", pytrace=False)
    return broker


@pytest.fixture(scope=_scope)
def kafka_bootstrap(kafka_client: BlockingClient) -> str:
    """Bootstrap servers of the cluster under test: ``HOST:PORT``, or the value of ``OTTLA_TEST_BOOTSTRAP``."""
    return kafka_client.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_cluster_options(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Arguments of the `ottla.Cluster` of `kafka_cluster`. Override this fixture to change them."""
    return {"nodes": _number(pytestconfig, "ottla_nodes"), "settings": _settings(pytestconfig)}


@pytest.fixture(scope="session")
def kafka_cluster(kafka_cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """Yield the session's cluster of nodes in processes of their own, which a test may kill and restart.

    A killed node stays so for later tests. ``OTTLA_TEST_BOOTSTRAP`` has no effect.
    """
    # lazy: 74.2 ms, 3803 kB
    from ottla.cluster import Cluster

    with Cluster(**kafka_cluster_options) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic_factory(
    kafka_client: BlockingClient, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> Iterator[TopicFactory]:
    """Yield a function that creates topics, which are deleted after the test.

    Its arguments are ``partitions`` (default: the option ``ottla_partitions``), ``name`` (default: derived from the
    test's name) and ``settings`` of the topic; it returns the name of the topic.
    """
    created: list[str] = []

    def create(
        partitions: int | None = None, *, name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> str:
        topic = name or _fresh(request, "topic")
        kafka_client.create_topic(topic, partitions or _number(pytestconfig, "ottla_partitions"), settings=settings)
        created.append(topic)
        return topic

    yield create
    for topic in created:
        _delete(partial(kafka_client.delete_topic, topic), f"topic {topic}")


@pytest.fixture
def kafka_topic(kafka_topic_factory: TopicFactory, request: pytest.FixtureRequest) -> str:
    """Return the name of a new topic, derived from the test's name; the topic is deleted after the test.

    It has one partition, unless the option ``ottla_partitions`` or the marker ``kafka_topic`` sets another number.
    """
    marker = request.node.get_closest_marker("kafka_topic")
    return kafka_topic_factory(*marker.args, **marker.kwargs) if marker is not None else kafka_topic_factory()


@pytest.fixture
def kafka_group(kafka_client: BlockingClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a unique group id; on an external cluster the group is deleted after the test."""
    name = _fresh(request, "group")
    yield name
    if os.environ.get(EXTERNAL):
        _delete(partial(kafka_client.delete_group, name), f"group {name}")


def _delete(work: Callable[[], None], subject: str) -> None:
    """Call ``work`` to delete a topic or group of a test; warn if that fails, unless ``subject`` does not exist."""
    # lazy: 2.6 ms, 74 kB
    from ottla.wire.errors import ErrorCode, ProtocolError, WireError

    try:
        work()
    except (OSError, ProtocolError, WireError) as error:
        gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)
        if not isinstance(error, ProtocolError) or error.code not in gone:
            warnings.warn(f"{subject} was not deleted: {error}", stacklevel=1)


def _fresh(request: pytest.FixtureRequest, kind: str) -> str:
    """Return a unique topic or group name that contains the test's name."""
    own = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in request.node.name)
    return f"{own[:150]}-{kind}-{uuid.uuid4().hex[:12]}"
