"""What a controller does once: read what is there, and write the first records of a new cluster or a new leader.

Source: ``ActivationRecordsGenerator.java``, ``MetadataLoader.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.brokers import SUPPORTED_FEATURES
from ottla.controller.config_rules import MIN_ISR
from ottla.controller.format import BOOTSTRAP_FILE, bootstrap_records
from ottla.controller.image import RESOURCE_BROKER, Image
from ottla.controller.machine import ControllerMachine
from ottla.controller.quorum_config import Endpoint
from ottla.controller.raft.store import MetadataStore, NotOurQuorum
from ottla.controller.records import METADATA_VERSION, NEWEST_METADATA_VERSION, OLDEST_METADATA_VERSION
from ottla.controller.snapshots import Snapshot, read_snapshot
from ottla.log.directory import Identity
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.world.env import Env


def replay(machine: ControllerMachine, store: MetadataStore) -> None:
    """Take snapshot and log in, as the state that was committed.

    Raises:
        WireError: a record cannot be read.
    """
    for record in store.snapshot.records:
        machine.replay(-1, record)
    last = store.snapshot_id.end_offset - 1
    for offset, record in store.records():
        machine.replay(offset, record)
        last = offset
    store.snapshot = Snapshot([], store.snapshot.kraft_version, store.snapshot.voters, store.snapshot.timestamp_ms)
    machine.appended(last, max(store.log.epochs.latest(), store.snapshot_id.epoch))
    machine.publish()


def check_level(image: Image) -> None:
    """Raise NotOurQuorum where the cluster runs at a metadata.version this node does not know."""
    level = image.features.get(METADATA_VERSION)
    if level is not None and not OLDEST_METADATA_VERSION <= level <= NEWEST_METADATA_VERSION:
        raise NotOurQuorum(
            f"the cluster's metadata.version is {level}; this node knows "
            f"{OLDEST_METADATA_VERSION} to {NEWEST_METADATA_VERSION}"
        )


def first_records(
    machine: ControllerMachine, env: Env, path: str, identity: Identity, controller: Endpoint
) -> Iterator[list[Message]]:
    """What a new leader appends, batch by batch (R265): each is committed before the next is made."""
    if machine.in_transaction:
        yield [m.AbortTransactionRecord("the controller was replaced")]
    if METADATA_VERSION not in machine.image.features:
        yield _bootstrap(env, f"{path}/{BOOTSTRAP_FILE}")
    yield [
        m.RegisterControllerRecord(
            identity.node_id,
            env.uuid(),
            False,
            [m.ControllerEndpoint(*controller, 0)],
            [m.ControllerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        )
    ]


def unheard(image: Image, node_id: int) -> list[int]:
    """Brokers other than this node's that count as alive."""
    return sorted(i for i, b in image.brokers.items() if i != node_id and not b.fenced)


def _bootstrap(env: Env, path: str) -> list[Message]:
    levels = read_snapshot(env.disk, path).records if env.disk.exists(path) else bootstrap_records()
    return [
        m.BeginTransactionRecord("Bootstrap records"),
        *levels,
        m.ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, "1"),
        m.EndTransactionRecord(),
    ]
