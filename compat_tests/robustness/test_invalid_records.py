"""Records that no coordinator writes, produced into every internal topic of a real node, which stays alive.

``OTTLA_INVALID_NODES`` is the number of nodes (10 in the campaign), each with an empty directory. Partitions 0 and 1 of
each internal topic get the records; partition 2 gets none and must stay available.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from devtools.fuzzing.coordinator_fixtures import GROUP_APIS, SHARE_APIS, TRANSACTION_APIS
from devtools.fuzzing.invalid_records import GROUPS, SHARE_STATE, TRANSACTIONS, RandomRecordGenerator
from devtools.fuzzing.likely_requests import LIKELY
from ottla.broker.coordinator.runtime import partition_for_key
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

NODES = int(os.environ.get("OTTLA_INVALID_NODES", "1"))
SEED = int(os.environ.get("OTTLA_INVALID_SEED", "1"))
APIS = (*GROUP_APIS, *SHARE_APIS, *TRANSACTION_APIS)
TOPICS = {"__consumer_offsets": GROUPS, "__transaction_state": TRANSACTIONS, "__share_group_state": SHARE_STATE}
ONE_EACH = {
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "share_coordinator_state_topic_num_partitions": "3",
}
BATCHES, REQUESTS = 40, 300
PATIENCE_S = 0.2
WORDS = ("Traceback", "unexpected error", "Coordinator of")


class AdminClient(RawClient):
    """Client that may write to internal topics."""

    client_id = "__admin_client"


def named(partition: int) -> str:
    """Return an id that one partition of three holds."""
    return next(name for name in (f"sound-{number}" for number in count()) if partition_for_key(name, 3) == partition)


def serves(port: int) -> bool:
    """Return True when partition 2 of `__consumer_offsets` and of `__transaction_state` is served."""
    with closing(RawClient(port)) as client:
        group = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(named(2), topics=None)])
        fetched = client.call(ApiKey.OFFSET_FETCH, 8, group).groups[0].error_code
        begun = client.call(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(named(2), 60_000)).error_code
    return bool(fetched == begun == ErrorCode.NONE)


def write(port: int, seed: int) -> int:
    """Write drawn records into the first two partitions of each internal topic; return the count of accepted ones."""
    taken = 0
    with closing(AdminClient(port)) as client:
        for topic, of_topic in TOPICS.items():
            for partition in range(2):
                records = RandomRecordGenerator(seed * 2 + partition, of_topic)
                for _ in range(BATCHES):
                    drawn = records.batch()
                    taken += drawn.records * (client.produce(topic, partition, drawn.raw).error_code == 0)
    return taken


def ask(port: int, seed: int) -> None:
    """Send requests to coordinators; late responses are not waited for."""
    odd, client = RandomRecordGenerator(seed, GROUPS).odd, RawClient(port, PATIENCE_S)
    for _ in range(REQUESTS):
        key = odd.rng.choice(APIS)
        version = odd.rng.randint(BROKER_APIS[key].min_version, BROKER_APIS[key].max_version)
        body = odd.generate(request_class(key), version)
        if key in LIKELY and odd.rng.random() < 0.7:
            version, body = BROKER_APIS[key].max_version, LIKELY[key](odd.rng)
        try:
            odd.learn_from(client.call(key, version, body))
        except (TimeoutError, OSError):
            client.close()
            client = RawClient(port, PATIENCE_S)
    client.close()


def prepare(port: int) -> None:
    """Create the internal topics and two others, and verify that the metadata log cannot be written by clients."""
    with closing(AdminClient(port)) as client:
        topics = [CreatableTopic(name, 3, 1) for name in ("t", "u", "__share_group_state")]
        client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics, 5_000))
        for kind in (0, 1):
            wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
            wait_until(
                lambda wanted=wanted: not client.call(ApiKey.FIND_COORDINATOR, 4, wanted).coordinators[0].error_code
            )  # type: ignore[misc]
        raw = RandomRecordGenerator(1, TRANSACTIONS).batch().raw
        assert client.produce("__cluster_metadata", 0, raw).error_code != ErrorCode.NONE
    wait_until(lambda: serves(port))


@pytest.fixture(params=range(SEED, SEED + NODES))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[OttlaProcess, int]]:
    with OttlaProcess(tmp_path / "data", None, **ONE_EACH) as out:
        yield out, request.param


def test_node_with_invalid_records_in_internal_topics_stays_alive_and_restarts(
    node: tuple[OttlaProcess, int], tmp_path: Path
) -> None:
    process, seed = node
    prepare(process.port)
    assert write(process.port, seed) > 6 * BATCHES
    for round_ in range(2):
        ask(process.port, seed + round_)
        time.sleep(1.0)  # for timers that are due at once
        assert serves(process.port)
        if round_ == 0:
            process.kill()
            process.start()
            wait_until(lambda: serves(process.port))
    log = process.log.read_text(errors="replace")
    assert not [line for line in log.splitlines() if any(word in line for word in WORDS)], log[-4000:]
