"""First records of a controller that becomes active, and the check of metadata.version on every node.

Source: ``ActivationRecordsGenerator.java``, ``MetadataLoader.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.config.config_validation import MIN_ISR
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.controller.metadata.record_serde import (
    ELR_VERSION,
    METADATA_VERSION,
    NEWEST_METADATA_VERSION,
    OLDEST_METADATA_VERSION,
)
from ottla.controller.metadata.snapshot_files import read_snapshot
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.store.metadata_store import IncompatibleQuorum
from ottla.controller.storage_formatter import BOOTSTRAP_FILE, bootstrap_records
from ottla.env.env import Env
from ottla.jobs.job import run_to_end
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.codec.schema import Message
from ottla.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    EndTransactionRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
)


def check_metadata_version(image: MetadataImage) -> None:
    """Raise IncompatibleQuorum if ``image`` has a metadata.version (it may have none) that this node lacks."""
    level = image.features.get(METADATA_VERSION)
    if level is not None and not OLDEST_METADATA_VERSION <= level <= NEWEST_METADATA_VERSION:
        raise IncompatibleQuorum(
            f"the cluster's metadata.version is {level}; this node supports "
            f"{OLDEST_METADATA_VERSION} to {NEWEST_METADATA_VERSION}"
        )


def activation_records(
    machine: ControllerStateMachine,
    env: Env,
    path: str,
    identity: MetaProperties,
    endpoints: tuple[ListenerEndpoint, ...],
    incarnation_id: bytes,
) -> Iterator[list[Message]]:
    """Yield the batches that a new leader appends (R-265); the caller commits each before it takes the next.

    These abort an open metadata transaction, bootstrap a new cluster, and register this node as a controller if this
    process is not registered yet. An unnecessary batch is left out.

    ``path``: metadata log directory, which may have a bootstrap snapshot. ``endpoints``: advertised controller
    listeners of this node. ``incarnation_id``: id of this process in its registration.
    """
    if machine.in_transaction:
        yield [AbortTransactionRecord("the controller was replaced")]
    if METADATA_VERSION not in machine.image.features:
        yield _bootstrap(env, f"{path}/{BOOTSTRAP_FILE}", machine.defaults.static_config.get(MIN_ISR, "1"))
    known = machine.image.controllers.get(identity.node_id)
    if known is None or known.incarnation_id != incarnation_id:
        yield [
            RegisterControllerRecord(
                identity.node_id,
                incarnation_id,
                False,
                [ControllerEndpoint(*endpoint, 0) for endpoint in endpoints],
                [ControllerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            )
        ]


def _bootstrap(env: Env, path: str, min_isr: str) -> list[Message]:
    """Return the records that bootstrap a cluster, as one metadata transaction.

    They are those of the snapshot file ``path`` (feature levels, SCRAM credentials), without it the newest feature
    levels. If eligible leader replicas are enabled, ``min_isr`` becomes the cluster's min.insync.replicas.
    """
    levels = run_to_end(read_snapshot(env.disk, path)).records if env.disk.exists(path) else bootstrap_records()
    kept = any(isinstance(x, FeatureLevelRecord) and x.name == ELR_VERSION and x.feature_level > 0 for x in levels)
    return [
        BeginTransactionRecord("Bootstrap records"),
        *levels,
        *([ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, min_isr)] if kept else []),
        EndTransactionRecord(),
    ]
