"""Log directory ids of replicas in the metadata (KIP-858), and which replicas are offline.

Sources: ``DirectoryId.java``, ``ReplicationControlManager.java`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage, PartitionRegistration
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages.metadata_records import RegisterBrokerRecord

MIGRATING = ZERO_UUID
UNASSIGNED = bytes(15) + b"\x01"


def default_directory_id(log_dirs: list[bytes]) -> bytes:
    """Return the directory id of a new replica on a broker with the online log directories ``log_dirs``.

    It is the only directory, UNASSIGNED if there are several, MIGRATING if none are registered.
    """
    if not log_dirs:
        return MIGRATING
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED


def directory_id_of(partition: PartitionRegistration, broker_id: int) -> bytes:
    """Return the directory id of a broker's replica; MIGRATING if the partition has none for it."""
    if broker_id in partition.replicas and len(partition.directories) == len(partition.replicas):
        return partition.directories[partition.replicas.index(broker_id)]
    return MIGRATING


def is_replica_online(partition: PartitionRegistration, broker: RegisterBrokerRecord) -> bool:
    """Return True if a broker's replica is in a directory that is online, or whose state is unknown."""
    found = directory_id_of(partition, broker.broker_id)
    return not broker.log_dirs or found in (MIGRATING, UNASSIGNED) or found in broker.log_dirs


def offline_replicas(image: MetadataImage, partition: PartitionRegistration) -> list[int]:
    """Return the broker ids of a partition's offline replicas: broker fenced or unregistered, or directory offline."""
    out = []
    for broker_id in partition.replicas:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced or not is_replica_online(partition, broker):
            out.append(broker_id)
    return out
