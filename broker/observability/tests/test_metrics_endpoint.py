"""The page of numbers, line by line, and who gets it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.observability import metrics_endpoint
from ottla.broker.observability.metrics_endpoint import MetricSources
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.replication.partition_state import CommittedIsr, FollowerReplica, FollowerState, LeaderState
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState as Follower_
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory
from ottla.jobs.time_slice import run_in_background
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import RequestFrame

OF_A_BROKER = """\
# HELP kafka_log_log_size Bytes of all segments.
# TYPE kafka_log_log_size gauge
kafka_log_log_size{topic="a",partition="0"} 10
kafka_log_log_size{topic="b",partition="7"} 17
# HELP kafka_log_log_numlogsegments Segments.
# TYPE kafka_log_log_numlogsegments gauge
kafka_log_log_numlogsegments{topic="a",partition="0"} 3
kafka_log_log_numlogsegments{topic="b",partition="7"} 3
# HELP kafka_log_log_logstartoffset First offset that is kept.
# TYPE kafka_log_log_logstartoffset gauge
kafka_log_log_logstartoffset{topic="a",partition="0"} 100
kafka_log_log_logstartoffset{topic="b",partition="7"} 107
# HELP kafka_log_log_logendoffset Next offset to be written.
# TYPE kafka_log_log_logendoffset gauge
kafka_log_log_logendoffset{topic="a",partition="0"} 200
kafka_log_log_logendoffset{topic="b",partition="7"} 207
# HELP kafka_server_replicamanager_partitioncount Partitions on this node.
# TYPE kafka_server_replicamanager_partitioncount gauge
kafka_server_replicamanager_partitioncount 5
# HELP kafka_server_replicamanager_leadercount Partitions this node leads.
# TYPE kafka_server_replicamanager_leadercount gauge
kafka_server_replicamanager_leadercount 3
# HELP kafka_server_replicamanager_underreplicatedpartitions Of those, the ones with replicas that are not in sync.
# TYPE kafka_server_replicamanager_underreplicatedpartitions gauge
kafka_server_replicamanager_underreplicatedpartitions 2
# HELP kafka_server_replicamanager_underminisrpartitioncount Of those, the ones with fewer in sync than \
min.insync.replicas.
# TYPE kafka_server_replicamanager_underminisrpartitioncount gauge
kafka_server_replicamanager_underminisrpartitioncount 1
# HELP kafka_server_replicamanager_atminisrpartitioncount Of those, the ones with just as many in sync as that.
# TYPE kafka_server_replicamanager_atminisrpartitioncount gauge
kafka_server_replicamanager_atminisrpartitioncount 1
# HELP kafka_server_replicafetchermanager_maxlag Committed records the follower is without that is most behind.
# TYPE kafka_server_replicafetchermanager_maxlag gauge
kafka_server_replicafetchermanager_maxlag 30
# HELP kafka_server_replicamanager_offlinereplicacount Partitions in failed directories.
# TYPE kafka_server_replicamanager_offlinereplicacount gauge
kafka_server_replicamanager_offlinereplicacount 4
# HELP kafka_log_logmanager_offlinelogdirectorycount Data directories that failed.
# TYPE kafka_log_logmanager_offlinelogdirectorycount gauge
kafka_log_logmanager_offlinelogdirectorycount 1
# HELP kafka_log_logcleanermanager_uncleanable_partitions_count Compacted partitions that cannot be compacted.
# TYPE kafka_log_logcleanermanager_uncleanable_partitions_count gauge
kafka_log_logcleanermanager_uncleanable_partitions_count 5
# HELP ottla_open_segments Segments whose file is open.
# TYPE ottla_open_segments gauge
ottla_open_segments 4
# HELP kafka_server_replicamanager_isrexpands_total Replicas that have come in sync.
# TYPE kafka_server_replicamanager_isrexpands_total counter
kafka_server_replicamanager_isrexpands_total 21
# HELP kafka_server_replicamanager_isrshrinks_total Times that replicas were let go for being behind.
# TYPE kafka_server_replicamanager_isrshrinks_total counter
kafka_server_replicamanager_isrshrinks_total 22
# HELP kafka_server_replicamanager_failedisrupdates_total Changes of an ISR that the controller refused.
# TYPE kafka_server_replicamanager_failedisrupdates_total counter
kafka_server_replicamanager_failedisrupdates_total 23
# HELP ottla_cleaner_passes_total Passes of the compactor.
# TYPE ottla_cleaner_passes_total counter
ottla_cleaner_passes_total 6
# HELP ottla_cleaner_read_bytes_total Bytes the compactor read.
# TYPE ottla_cleaner_read_bytes_total counter
ottla_cleaner_read_bytes_total 70
# HELP ottla_cleaner_written_bytes_total Bytes the compactor wrote.
# TYPE ottla_cleaner_written_bytes_total counter
ottla_cleaner_written_bytes_total 80
# HELP ottla_scrub_segments_total Old segments that were read again.
# TYPE ottla_scrub_segments_total counter
ottla_scrub_segments_total 9
# HELP ottla_scrub_damage_total Damaged places that were found in them.
# TYPE ottla_scrub_damage_total counter
ottla_scrub_damage_total 11
"""
OF_EVERY_NODE = """\
# HELP kafka_server_raft_metrics_current_leader Who leads the quorum; -1 where that is not known.
# TYPE kafka_server_raft_metrics_current_leader gauge
kafka_server_raft_metrics_current_leader 1
# HELP kafka_server_raft_metrics_current_vote Whom this node gave its vote; -1 for nobody.
# TYPE kafka_server_raft_metrics_current_vote gauge
kafka_server_raft_metrics_current_vote 3
# HELP kafka_server_raft_metrics_current_epoch The quorum's epoch.
# TYPE kafka_server_raft_metrics_current_epoch gauge
kafka_server_raft_metrics_current_epoch 7
# HELP kafka_server_raft_metrics_high_watermark Up to where the metadata is committed; -1 where not known.
# TYPE kafka_server_raft_metrics_high_watermark gauge
kafka_server_raft_metrics_high_watermark 80
# HELP kafka_server_raft_metrics_log_end_offset End of the metadata log here.
# TYPE kafka_server_raft_metrics_log_end_offset gauge
kafka_server_raft_metrics_log_end_offset 90
# HELP kafka_server_raft_metrics_log_end_epoch Epoch of its last record.
# TYPE kafka_server_raft_metrics_log_end_epoch gauge
kafka_server_raft_metrics_log_end_epoch 6
# HELP kafka_server_raft_metrics_number_of_voters Controllers that vote.
# TYPE kafka_server_raft_metrics_number_of_voters gauge
kafka_server_raft_metrics_number_of_voters 2
# HELP kafka_server_raft_metrics_number_of_observers Others that fetch the metadata log, as its leader knows.
# TYPE kafka_server_raft_metrics_number_of_observers gauge
kafka_server_raft_metrics_number_of_observers 0
# HELP kafka_server_raft_metrics_uncommitted_voter_change Whether a change of who votes is not committed yet.
# TYPE kafka_server_raft_metrics_uncommitted_voter_change gauge
kafka_server_raft_metrics_uncommitted_voter_change 0
# HELP ottla_connections Connections of clients, brokers and controllers.
# TYPE ottla_connections gauge
ottla_connections 12
# HELP kafka_server_raft_metrics_current_state 1 for the state this node is in.
# TYPE kafka_server_raft_metrics_current_state gauge
kafka_server_raft_metrics_current_state{state="leader"} 0
kafka_server_raft_metrics_current_state{state="candidate"} 0
kafka_server_raft_metrics_current_state{state="prospective"} 0
kafka_server_raft_metrics_current_state{state="follower"} 1
kafka_server_raft_metrics_current_state{state="unattached"} 0
kafka_server_raft_metrics_current_state{state="resigned"} 0
kafka_server_raft_metrics_current_state{state="observer"} 0
# HELP kafka_network_requestmetrics_requests_total Requests that came.
# TYPE kafka_network_requestmetrics_requests_total counter
kafka_network_requestmetrics_requests_total{request="Produce"} 2
kafka_network_requestmetrics_requests_total{request="OffsetForLeaderEpoch"} 1
# HELP ottla_answers_total Answers that left; what asks for none gets none.
# TYPE ottla_answers_total counter
ottla_answers_total{request="Produce"} 1
ottla_answers_total{request="OffsetForLeaderEpoch"} 1
# HELP ottla_request_bytes_total Bytes of the requests.
# TYPE ottla_request_bytes_total counter
ottla_request_bytes_total{request="Produce"} 38
ottla_request_bytes_total{request="OffsetForLeaderEpoch"} 24
# HELP ottla_answer_bytes_total Bytes of the answers.
# TYPE ottla_answer_bytes_total counter
ottla_answer_bytes_total{request="Produce"} 7
ottla_answer_bytes_total{request="OffsetForLeaderEpoch"} 9
"""


def log(topic: str, number: int) -> Any:
    return SimpleNamespace(
        topic=topic,
        partition=number,
        size_bytes=10 + number,
        log_start_offset=100 + number,
        log_end_offset=200 + number,
        segments=[SimpleNamespace(is_open=is_open) for is_open in (True, False, True)],
    )


class MetricsReplicas(list[Any]):
    offline_partitions = (1, 2, 3, 4)
    isr_expands, isr_shrinks, isr_failures = 21, 22, 23


def replica(state: Any, lag: int = 0) -> Any:
    settings = SimpleNamespace(min_insync_replicas=2)
    return SimpleNamespace(state=state, lag=lag, log=SimpleNamespace(config=settings))


def led(*isr: int) -> LeaderState:
    """Of three replicas."""
    return LeaderState(1, 3, 0, CommittedIsr(isr), 0, {2: FollowerReplica(), 3: FollowerReplica()})


def numbers(logs: list[Any], *, serves: bool = True) -> MetricSources:
    followers = [replica(FollowerState(3, 2), lag) for lag in (30, 4)]
    replicas: Any = MetricsReplicas([replica(led(1, 2, 3)), replica(led(1)), replica(led(1, 3)), *followers])
    storage: Any = SimpleNamespace(logs=lambda: logs, offline=["/data"])
    cleaner: Any = SimpleNamespace(uncleanable_count=5, passes=6, bytes_read=70, bytes_written=80)
    scrubber: Any = SimpleNamespace(segments_read=9, damage_count=11)
    controller = SimpleNamespace(raft=following())
    return MetricSources(
        storage, replicas, cleaner, scrubber, counted(), lambda: 12, controller, serves, is_controller=False
    )


def following() -> Any:
    """Node 2 follows node 1."""
    voters = VoterSetHistory([ReplicaKey(1), ReplicaKey(2)])
    chain = SimpleNamespace(end_offset=90, last_epoch=6)
    hard = HardState(7, 1, ReplicaKey(3))
    return SimpleNamespace(
        local_replica=ReplicaKey(2),
        state=Follower_(1, 0),
        voters=voters,
        hard_state=hard,
        log_summary=chain,
        leader_id=1,
        epoch=7,
        high_watermark=80,
    )


def counted() -> RequestMetrics:
    counts, peer = RequestMetrics(), Peer("h", ("a", 1))
    for key, size_bytes, answer_bytes in (
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 20, 9),
        (ApiKey.PRODUCE, 10, 7),
        (ApiKey.PRODUCE, 20, 0),
    ):
        request = RequestFrame(key, 3, 1, "me", memoryview(bytes(size_bytes)), 8, 3)
        counts.received(peer, request)
        if answer_bytes:
            counts.answered(peer, request, (), answer_bytes)
    return counts


def test_the_page_says_what_each_number_is() -> None:
    async def run() -> None:
        world: Any = ConnectionEnv()
        page = await run_in_background(world, metrics_endpoint.render_page(world, numbers([log("a", 0), log("b", 7)])))
        assert page.decode() == OF_A_BROKER + OF_EVERY_NODE

    in_virtual_time(run)


def test_a_controller_that_is_no_broker_tells_of_no_logs() -> None:
    async def run() -> None:
        world: Any = ConnectionEnv()
        assert (
            await run_in_background(world, metrics_endpoint.render_page(world, numbers([], serves=False)))
        ).decode() == OF_EVERY_NODE

    in_virtual_time(run)


@pytest.mark.parametrize("slow", ["size_bytes", "is_open"])
def test_a_walk_over_many_logs_lets_others_run(slow: str) -> None:
    """Each of its rounds, the one over the segments too."""
    turns = 0

    async def run() -> None:
        nonlocal turns
        world: Any = ConnectionEnv()

        def look(_: Any) -> int:
            world.work(0.05)
            return 1

        looked = type("Looked", (SimpleNamespace,), {slow: property(look)})
        rest = {"topic": "t", "partition": 0, "log_start_offset": 0, "log_end_offset": 0}
        if slow == "is_open":
            logs = [SimpleNamespace(**rest, size_bytes=0, segments=[looked()]) for _ in range(1000)]
        else:
            logs = [looked(**rest, segments=[]) for _ in range(1000)]

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await run_in_background(world, metrics_endpoint.render_page(world, numbers(logs)))
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert 18 <= turns <= 22, "50 ms of work, 2 ms at a time as far as fifty logs fit in"


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 101])
def test_every_log_has_its_lines_however_the_walk_is_cut(count: int) -> None:
    async def run() -> None:
        world: Any = ConnectionEnv()
        text = (
            await run_in_background(
                world, metrics_endpoint.render_page(world, numbers([log("t", n) for n in range(count)]))
            )
        ).decode()
        for name in ("size", "numlogsegments", "logstartoffset", "logendoffset"):
            found = [x for x in text.split("\n") if x.startswith(f"kafka_log_log_{name}{{")]
            assert [x.split('"')[3] for x in found] == [str(n) for n in range(count)]
        assert f"\nottla_open_segments {2 * count}\n" in text

    in_virtual_time(run)
