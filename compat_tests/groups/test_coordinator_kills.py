"""Coordinators of groups of every kind killed under their members: the groups continue on another node.

``OTTLA_GROUP_KILLS`` is the number of kills (20 in the campaign, one by default). Each kill takes the coordinator of
another group, or of the state of a share partition. No committed offset is lost, each group reads each record, and each
group continues once the next coordinator has loaded its partition, in the campaign within 3 s; ``-s`` shows how long it
took.
"""

from __future__ import annotations

import os
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, ShareConsumer

import ottla
from compat_tests.cluster.test_three_nodes import WITHIN_S, all_in_sync, make_topic, wait_for
from compat_tests.groups.test_share_cluster import GROUP as SHARED
from compat_tests.groups.test_share_cluster import reset_to_earliest
from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.raw_client import RawClient
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import offset_fetch_request
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator, metadata, offset_commit
from ottla.wire.messages import streams_group_heartbeat as sth

KILLS = int(os.environ.get("OTTLA_GROUP_KILLS", "1"))
GOES_ON_WITHIN_S = 3.0 if KILLS > 1 else WITHIN_S
"""Limit of the time to continue. The short form runs beside other tests, so its limit is lax."""
TOPIC, PARTITIONS = "work", 3
PROTOCOLS = ("classic", "consumer")
OF_SHARES = 2
"""Key type of FindCoordinator for the state of a share partition."""
QUICK: dict[str, Any] = {"reconnect.backoff.max.ms": 500, "socket.timeout.ms": 5_000, "log_level": 0}
INTERNAL = ("__consumer_offsets", "__share_group_state", TOPIC)


class GroupKillMember(threading.Thread):
    """Running member of a group: its records, and the time of the last successful response of the coordinator."""

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__()
        self.bootstrap, self.group = bootstrap, group
        self.done: set[int] = set()
        self.committed: dict[int, int] = {}
        """Positions it was told are kept."""
        self.taken_at_s = 0.0
        self.failure: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        try:
            self.work(self._over.is_set)
        except BaseException as failure:  # raised by the thread that waits for it
            self.failure = failure

    def work(self, is_over: Callable[[], bool]) -> None:
        """Read and report progress until the end."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave the group."""
        self._over.set()
        self.join()


class CommittingMember(GroupKillMember):
    """Consumer of either protocol that commits each batch at once."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        super().__init__(bootstrap, f"of-{protocol}")
        self.protocol = protocol

    def work(self, is_over: Callable[[], bool]) -> None:
        more = {"group.protocol": "consumer"} if self.protocol == "consumer" else {"session.timeout.ms": 45_000}
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, **QUICK, **more, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        while not is_over():
            messages = [m for m in consumer.consume(500, 0.1) if m.error() is None]
            self.done |= {int(m.value()) for m in messages}
            if not messages:
                continue
            with suppress(KafkaException):  # the coordinator is gone: the next one returns the error, too
                for place in consumer.commit(asynchronous=False):
                    if place.error is None and place.offset >= 0:
                        self.committed[place.partition] = place.offset
                self.taken_at_s = time.monotonic()
        consumer.close()


class SharingMember(GroupKillMember):
    """Member of a share group that accepts all records."""

    def work(self, is_over: Callable[[], bool]) -> None:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUICK}
        with ShareConsumer({**config, "share.acknowledgement.mode": "explicit"}) as consumer:
            consumer.subscribe([TOPIC])
            while not is_over():
                held = []
                for message in consumer.poll(0.1):
                    if message.error() is None:
                        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                        self.done.add(int(message.value()))  # the result of the acknowledgement may never arrive
                        held.append(message)
                if not held:
                    continue
                with suppress(KafkaException):
                    if any(error is None for error in consumer.commit_sync(10.0).values()):
                        self.taken_at_s = time.monotonic()


class StreamsThreadMember(GroupKillMember):
    """Thread of a streams group, as far as the group sees it: it sends heartbeats and commits one offset more each
    time.
    """

    def work(self, is_over: Callable[[], bool]) -> None:
        epoch, client = 0, None
        while not is_over():
            time.sleep(0.1)
            try:
                client = client or self._coordinator()
                epoch, error = self._beat(client, epoch)
                if not error:
                    error = self._commit(client, epoch)
            except OSError:
                error = ErrorCode.NOT_COORDINATOR
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                epoch = 0
            elif error and client is not None:
                client.close()
                client = None

    def _coordinator(self) -> RawClient:
        """Connect to the coordinator.

        Raises:
            OSError: The coordinator is unknown or unreachable.
        """
        for address in self.bootstrap.split(","):
            with suppress(OSError):
                client = RawClient(int(address.rsplit(":", 1)[1]), 5.0)
                (row,) = client.call(
                    ApiKey.FIND_COORDINATOR, 6, find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group])
                ).coordinators
                client.close()
                if not row.error_code:
                    return RawClient(row.port, 5.0)
        raise ConnectionError("no coordinator")

    def _beat(self, client: RawClient, epoch: int) -> tuple[int, int]:
        request = sth.StreamsGroupHeartbeatRequest(self.group, "t", epoch)
        if epoch == 0:
            request.topology = sth.Topology(0, [sth.Subtopology("0", [TOPIC])])
            request.rebalance_timeout_ms, request.process_id = 60_000, "p"
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        answer = client.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)
        return (epoch if answer.error_code else answer.member_epoch), answer.error_code

    def _commit(self, client: RawClient, epoch: int) -> int:
        offset = self.committed.get(0, 0) + 1
        row = offset_commit.OffsetCommitRequestTopic(
            TOPIC, partitions=[offset_commit.OffsetCommitRequestPartition(0, offset)]
        )
        answer = client.call(
            ApiKey.OFFSET_COMMIT, 9, offset_commit.OffsetCommitRequest(self.group, epoch, "t", topics=[row])
        )
        error: int = answer.topics[0].partitions[0].error_code
        if not error:
            self.committed[0], self.taken_at_s = offset, time.monotonic()
        return error


@contextmanager
def running_members(cluster: ottla.Cluster) -> Iterator[tuple[NumberWriter, list[GroupKillMember]]]:
    """Run a writer, two members of each protocol, two members of a share group, and a thread of a streams group."""
    bootstrap = cluster.bootstrap_servers
    make_topic(bootstrap, TOPIC, PARTITIONS)
    reset_to_earliest(bootstrap)
    members: list[GroupKillMember] = [CommittingMember(bootstrap, protocol) for protocol in PROTOCOLS for _ in range(2)]
    members += [*(SharingMember(bootstrap, SHARED) for _ in range(2)), StreamsThreadMember(bootstrap, "of-streams")]
    with ExitStack() as ends:
        writing = ends.enter_context(
            NumberWriter(bootstrap, TOPIC, partitioned(PARTITIONS), config=QUICK, pause_s=0.02)
        )
        for one in members:
            one.start()
            ends.callback(one.end)
        wait_for_progress(members, 0.0)
        for topic in INTERNAL:
            wait_for(lambda topic=topic: all_in_sync(bootstrap, topic))
        yield writing, members


def groups_of(members: list[GroupKillMember]) -> list[str]:
    return sorted({member.group for member in members})


def group_done(members: list[GroupKillMember], group: str) -> set[int]:
    """Return the records that a group has read."""
    return set().union(*(member.done for member in members if member.group == group))


def unread_numbers(writing: NumberWriter, members: list[GroupKillMember], group: str) -> set[int]:
    """Return the records that a group has not read."""
    return set(writing.acknowledged) - group_done(members, group)


def ask(cluster: ottla.Cluster, dead: int, key: ApiKey, version: int, request: Any) -> Any:
    """Return the response of a live node."""
    node = next(node for node in cluster.nodes if node.id != dead)
    client = RawClient(int(node.bootstrap_servers.rsplit(":", 1)[1]))
    try:
        return client.call(key, version, request)
    finally:
        client.close()


def coordinator(cluster: ottla.Cluster, key: str, kind: int = 0, dead: int = 0) -> int:
    """Return the coordinator of a group or of the state of a share partition; -1 while it is unknown."""
    request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    (row,) = ask(cluster, dead, ApiKey.FIND_COORDINATOR, 6, request).coordinators
    return -1 if row.error_code else int(row.node_id)


def loaded_offsets(cluster: ottla.Cluster, group: str, dead: int) -> dict[int, int] | None:
    """Return the offsets of a group as its coordinator has loaded them; None while it is loading."""
    member = coordinator(cluster, group, 0, dead)
    if member in (-1, dead):
        return None
    client = RawClient(int(cluster.node(member).bootstrap_servers.rsplit(":", 1)[1]))
    try:
        row = client.call(ApiKey.OFFSET_FETCH, 9, offset_fetch_request(group)).groups[0]
    finally:
        client.close()
    if row.error_code:
        return None
    return {part.partition_index: part.committed_offset for topic in row.topics for part in topic.partitions}


def check_positions(
    cluster: ottla.Cluster, members: list[GroupKillMember], before: dict[str, dict[int, int]], dead: int
) -> None:
    """Verify that the current coordinator of each group has all offsets that members committed."""
    for group, expected in before.items():
        found = wait_for(lambda group=group: loaded_offsets(cluster, group, dead))
        lost = {
            place: (offset, found.get(place)) for place, offset in expected.items() if found.get(place, -1) < offset
        }
        assert not lost, (group, lost)


def committed(members: list[GroupKillMember]) -> dict[str, dict[int, int]]:
    """Return the offsets that members of each group have committed successfully."""
    out: dict[str, dict[int, int]] = {}
    for member in members:
        for place, offset in list(member.committed.items()):
            own = out.setdefault(member.group, {})
            own[place] = max(own.get(place, -1), offset)
    return out


def wait_for_progress(members: list[GroupKillMember], since_s: float) -> float:
    """Wait until a member of each group gets a successful response; return the longest time."""

    def all_were() -> bool:
        assert [member.failure for member in members if member.failure is not None] == []
        return all(
            any(member.taken_at_s > since_s for member in members if member.group == group)
            for group in groups_of(members)
        )

    wait_for(all_were)
    return time.monotonic() - since_s


def test_groups_after_kill_of_coordinator_keep_offsets_and_continue() -> None:
    with ottla.Cluster(3) as cluster, running_members(cluster) as (writing, members):
        request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
        topic_id = ask(cluster, 0, ApiKey.METADATA, 12, request).topics[0].topic_id
        share = f"{SHARED}:{urlsafe_b64encode(topic_id).decode().rstrip('=')}:0"
        keys = [*((group, 0) for group in groups_of(members)), (share, OF_SHARES)]
        for turn in range(KILLS):
            key, kind = keys[turn % len(keys)]
            victim = wait_for(lambda: max(coordinator(cluster, key, kind), 0))  # noqa: B023  # waited for here
            before = committed(members)
            killed_at_s = time.monotonic()
            cluster.kill(victim)
            wait_for(lambda: coordinator(cluster, key, kind, victim) not in (-1, victim))  # noqa: B023  # waited for here
            check_positions(cluster, members, before, victim)
            loaded_at_s = time.monotonic()
            took_s = wait_for_progress(members, loaded_at_s)
            print(f"{key.split(':')[0]}: read after {loaded_at_s - killed_at_s:.1f} s, on after {took_s:.1f} s")
            assert took_s <= GOES_ON_WITHIN_S
            cluster.restart(victim)
            for topic in INTERNAL:
                wait_for(lambda topic=topic: all_in_sync(cluster.bootstrap_servers, topic))
        writing.stop()
        for group in (SHARED, *(f"of-{protocol}" for protocol in PROTOCOLS)):
            try:
                wait_for(lambda group=group: not unread_numbers(writing, members, group))
            except AssertionError:
                raise AssertionError((group, sorted(unread_numbers(writing, members, group))[:20])) from None
        check_positions(cluster, members, committed(members), 0)
