"""Node identity: listener ports, stored identity, and automatic formatting of directories."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.bound_listeners import BindError, BoundListeners
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.storage.node_identity import LogDirsNotFormatted, format_log_dirs, read_previous_voters
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.storage_formatter import FormatPlan, InitialVoter, format_directories, read_snapshot_voters
from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.meta_properties import MetaProperties

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
LEVELS = bootstrap_feature_levels(None, {}, dynamic_quorum=True)
OTHERS = {"controller.quorum.bootstrap.servers": "two:9093"}


class BoundPorts:
    """Network with some ports in use; free ones are assigned in ascending order."""

    def __init__(self, *taken: int) -> None:
        self.taken = set(taken)
        self.open: list[int] = []
        self._free = itertools.count(5000)

    async def listen(self, host: str, port: int, buffers: Any) -> Any:
        await trio.lowlevel.checkpoint()
        port = port or next(self._free)
        if port in self.taken:
            raise OSError(errno.EADDRINUSE, "in use")
        self.taken.add(port)
        self.open.append(port)
        return SimpleNamespace(port=port, host=host, close=lambda: self.open.remove(port))


class NodeIdentityFixture:
    """A node's disk, settings and network."""

    def __init__(self, values: dict[str, str] | None = None, *taken: int, host: str = "127.0.0.1") -> None:
        self.disk = MemoryDisk(random.Random(1), lambda: 0)
        self.values, self.host, self.ports = values or {}, host, BoundPorts(*taken)
        self.ids: Iterator[bytes] = (bytes([7, *n.to_bytes(15, "big")]) for n in itertools.count())

    def start(self) -> tuple[NodeConfig, MetaProperties, tuple[ListenerEndpoint, ...]]:
        """Start as a node does: listen, identify the directories, and format new ones."""
        config = NodeConfig(self.values, "/data", host=self.host, port=0)
        storage = LogDirs(self.disk.session(), config.data_dirs)
        env: Any = SimpleNamespace(net=self.ports)
        listening = BoundListeners(env, config)

        async def listen() -> tuple[ListenerEndpoint, ...]:
            await listening.bind_clients()
            found = storage.identify(config.node_id, None)
            kept = () if found is None else read_previous_voters(storage, config)
            await listening.bind_controllers(kept)
            return kept

        kept = trio.run(listen)
        quorum = config.quorum_config(*listening.controller_ports, kept=kept)
        identity = storage.metadata.meta_properties
        if identity is None:
            identity = format_log_dirs(storage, config, quorum, 0, lambda: next(self.ids))
        storage.unlock()
        listening.close()
        assert not self.ports.open
        self.ports.taken.clear()
        return config, identity, quorum.endpoints


def test_controller_port_is_chosen_once_and_stored() -> None:
    fixture = NodeIdentityFixture()
    _, identity, endpoints = fixture.start()
    assert endpoints == (ListenerEndpoint("CONTROLLER", "127.0.0.1", 5001),)
    again = fixture.start()
    assert (again[1], again[2]) == (identity, endpoints)
    assert again[0].is_standalone


def test_stored_controller_port_in_use_is_replaced() -> None:
    fixture = NodeIdentityFixture()
    fixture.start()
    fixture.ports.taken = {5001}
    assert fixture.start()[2] == (ListenerEndpoint("CONTROLLER", "127.0.0.1", 5003),)


def test_controller_endpoint_of_directory_is_kept_or_updated() -> None:
    fixture = NodeIdentityFixture()
    storage = LogDirs(fixture.disk.session(), ["/data"])
    there = (ListenerEndpoint("CONTROLLER", "localhost", 9093),)
    plan = FormatPlan(1, CLUSTER, LEVELS, (InitialVoter(1, bytes([9]) * 16, there),))
    format_directories(storage.directories, storage.metadata, plan, 0, lambda: bytes([8]) * 16)
    assert fixture.start()[2] == there
    fixture.host = "10.0.0.5"
    assert fixture.start()[2] == (ListenerEndpoint("CONTROLLER", "10.0.0.5", 9093),), (
        "others are told an address of now"
    )


def test_wildcard_host_is_stored_as_localhost() -> None:
    fixture = NodeIdentityFixture(host="0.0.0.0")
    assert fixture.start()[2] == (ListenerEndpoint("CONTROLLER", "localhost", 5001),)
    voters = read_snapshot_voters(LogDirs(fixture.disk.session(), ["/data"]).metadata)
    assert voters is not None
    assert voters[0].endpoints[0].host == "localhost"


def test_configured_controller_port_overrides_stored_one() -> None:
    fixture = NodeIdentityFixture()
    fixture.start()
    fixture.values = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:6000"}
    assert fixture.start()[2] == (ListenerEndpoint("CONTROLLER", "127.0.0.1", 6000),)
    fixture.ports.taken = {6000}
    with pytest.raises(BindError, match=r"127\.0\.0\.1:6000: Address already in use"):
        fixture.start()


def test_unformatted_directory_with_other_voters_raises() -> None:
    with pytest.raises(
        LogDirsNotFormatted, match=r"/data is not formatted.*ottla format --cluster-id ID --node-id 1"
    ) as result:
        NodeIdentityFixture(OTHERS).start()
    assert "\n" not in str(result.value)
    own = {"controller.quorum.bootstrap.servers": "localhost:6000", "listeners": "P://:1,CONTROLLER://:6000"}
    own["listener.security.protocol.map"] = "P:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert NodeIdentityFixture(own).start()[0].is_standalone


def test_directory_with_other_voters_is_not_standalone() -> None:
    for voters in ((1, 2, 3), ()):
        fixture = NodeIdentityFixture()
        storage = LogDirs(fixture.disk.session(), ["/data"])
        rows = tuple(InitialVoter(n, bytes([n]) * 16, (ListenerEndpoint("CONTROLLER", "h", 9090 + n),)) for n in voters)
        plan = FormatPlan(1, CLUSTER, LEVELS, rows)
        format_directories(storage.directories, storage.metadata, plan, 0, lambda: bytes([8]) * 16)
        config, _, _ = fixture.start()
        assert not config.is_standalone
        assert config.text("offsets.topic.replication.factor") == "3"


def test_every_configured_listener_is_bound() -> None:
    values = {
        "listeners": "IN://127.0.0.1:11,OUT://:12,CONTROLLER://:13,SECOND://:14",
        "controller.listener.names": "SECOND,CONTROLLER",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECOND:PLAINTEXT",
        "ottla.metrics.listener": "127.0.0.1:15",
    }
    ports = BoundPorts()
    env: Any = SimpleNamespace(net=ports)
    listening = BoundListeners(env, NodeConfig(values, host="127.0.0.1", port=11))

    async def listen() -> None:
        await listening.bind_clients()
        await listening.bind_controllers()
        await listening.bind_metrics()

    trio.run(listen)
    assert listening.ports == {"IN": 11, "OUT": 12}
    assert listening.controller_ports == (14, 13)
    assert sorted(ports.open) == [11, 12, 13, 14, 15]
    listening.close()
    assert ports.open == []
