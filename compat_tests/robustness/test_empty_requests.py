"""Requests with empty arrays, null arrays and duplicate elements: each API of both kinds of listener."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from ottla.broker.dispatch.api_registry import BROKER_APIS, CONTROLLER_APIS
from ottla.wire.api_keys import ApiKey, request_class, request_spec
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import create_topics
from ottla.wire.messages.api_versions import ApiVersionsRequest


class CombinedNode(OttlaProcess):
    """Node that is broker and controller, with a listener for each."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.ports = {"PLAINTEXT": self.port, "CONTROLLER": free_port()}
        self.file = data_dir.parent / "node.properties"
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        self.file.write_text(
            f"listeners={listeners}\nadvertised.listeners=PLAINTEXT://{self.bootstrap}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            "controller.listener.names=CONTROLLER\nprocess.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{self.ports['CONTROLLER']}\n"
            "group.coordinator.rebalance.protocols=classic,consumer,share,streams\n"
        )

    def command(self) -> list[str]:
        return [OTTLA, "serve", "--config", str(self.file), "--data-dir", str(self.data_dir)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CombinedNode]:
    process = CombinedNode(tmp_path_factory.mktemp("both") / "data")
    with process:
        yield process
    log = process.log.read_text()
    assert "Traceback" not in log, log


@cache
def _hints(cls: type[Struct]) -> dict[str, Any]:
    module = import_module(cls.__module__)
    return {k: v for k, v in typing.get_type_hints(cls, vars(module)).items() if k in cls.__struct_fields__}


def _listed(hint: Any) -> Any:
    """Return the element type of an array; None for other types."""
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is list:
            return typing.get_args(one)[0]
    return None


def without(cls: type[Struct]) -> Any:
    """Return a message with null arrays where the version permits them; otherwise encoding fails."""
    out = cls()
    for field, hint in _hints(cls).items():
        if type(None) in typing.get_args(hint) and _listed(hint) is not None:
            setattr(out, field, None)
    return out


def twice(cls: type[Struct]) -> Any:
    """Return a message with each element of each array twice, nested arrays included."""
    out = cls()
    for field, hint in _hints(cls).items():
        one = _listed(hint)
        if isinstance(one, type):
            setattr(out, field, [twice(one), twice(one)] if issubclass(one, Struct) else [one(), one()])
    return out


MAKERS = {"empty": lambda cls: cls(), "without": without, "twice": twice}
ROUTED = {"PLAINTEXT": BROKER_APIS, "CONTROLLER": CONTROLLER_APIS}


def served(listener: str) -> Iterator[tuple[ApiKey, int]]:
    """Return the oldest and the newest version of each API."""
    for key, route in ROUTED[listener].items():
        low = max(route.min_version, request_spec(key).versions.low)  # Produce is advertised from 0, as Kafka does
        yield from ((key, version) for version in sorted({low, route.max_version}))


@pytest.mark.parametrize("how", MAKERS)
@pytest.mark.parametrize("listener", ROUTED)
def test_request_with_empty_or_duplicate_arrays_ends_no_node(
    both: CombinedNode, listener: str, how: str, topic: str
) -> None:
    """Empty requests (CVE-2026-83525: FetchSnapshot without a topic ended the controller)."""
    requested, hung_up = 0, set[str]()
    for key, version in served(listener):
        peer = RawClient(both.ports[listener])
        try:
            body = MAKERS[how](request_class(key))
            if key is ApiKey.PRODUCE:
                body.acks = 1  # the default, 0, wants no response
            peer.send(key, version, body)
        except (TypeError, AttributeError, WireError):
            peer.close()
            continue  # this version has no such value
        requested += 1
        try:
            peer.receive(key, version)
        except ConnectionError:
            hung_up.add(key.name)
        finally:
            peer.close()
    assert requested >= {"PLAINTEXT": 120, "CONTROLLER": 60}[listener]
    assert hung_up <= {"DESCRIBE_ACLS"}, "of a filter by a kind of resource that nobody knows, as Kafka does"
    assert RawClient(both.ports[listener]).call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1")).error_code == 0
    made = RawClient(both.port).call(
        ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([create_topics.CreatableTopic(topic, 1, 1)], 10_000)
    )
    assert made.topics[0].error_code == ErrorCode.NONE, "the controller decides as before"
