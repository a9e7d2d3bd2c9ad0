"""Share group on three nodes, each of which is killed once: accepted records stay accepted, others are redelivered."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

import ottla
from compat_tests.cluster.test_three_nodes import all_in_sync, make_topic, wait_for
from compat_tests.support.raw_client import RawClient
from ottla.controller.metadata.image import RESOURCE_GROUP
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import incremental_alter_configs

WITHIN_S = 300.0
RECORDS = 100
GROUP = "shared"


def reset_to_earliest(bootstrap: str) -> None:
    """Let the group read from the start of the log."""
    host = bootstrap.split(",", maxsplit=1)[0]
    client = RawClient(int(host.rsplit(":", 1)[1]))
    value = incremental_alter_configs.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(RESOURCE_GROUP, GROUP, [value])]
    )
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code == 0
    client.close()


def send(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce("work", str(number), partition=number % 3)
    assert producer.flush(WITHIN_S) == 0


def accept(reader: ShareConsumer, wanted: set[int], accepted: list[int]) -> None:
    """Accept until each record was accepted; a failed acknowledgement does not count."""
    deadline = time.monotonic() + WITHIN_S
    while not wanted <= set(accepted) and time.monotonic() < deadline:
        held: list[tuple[tuple[str, int], int]] = []
        for message in reader.poll(1.0):
            if message.error() is None:
                reader.acknowledge(message, AcknowledgeType.ACCEPT)
                held.append(((message.topic(), message.partition()), int(message.value())))
        try:
            result = reader.commit_sync(10.0)
        except KafkaException:
            continue
        taken = {(place.topic, place.partition) for place, error in result.items() if error is None}
        accepted += [number for where, number in held if where in taken]
    assert wanted <= set(accepted), sorted(wanted - set(accepted))


def test_share_group_with_each_node_killed_redelivers_no_accepted_record() -> None:
    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topic(bootstrap, "work")
        reset_to_earliest(bootstrap)
        accepted: list[int] = []
        with ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
        ) as reader:
            reader.subscribe(["work"])
            for round_, node in enumerate((None, 1, 2, 3)):
                first = RECORDS * round_
                send(bootstrap, first)
                if node is not None:
                    cluster.kill(node)
                accept(reader, set(range(first, first + RECORDS)), accepted)
                if node is not None:
                    cluster.restart(node)
                    for name in ("work", "__share_group_state", "__consumer_offsets"):
                        wait_for(partial(all_in_sync, bootstrap, name))
        twice = sorted(number for number in set(accepted) if accepted.count(number) > 1)
        assert not twice
