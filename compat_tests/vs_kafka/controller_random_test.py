"""Random test of a cluster: the same steps for our controller's rules and for Kafka's classes.

Every step must create equal records and responses. Known differences are corrected between two steps: a broker in
controlled shutdown keeps its session; stale brokers are fenced in Kafka's order, and again when their session ends.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from compat_tests.vs_kafka.kafka_controller import (
    ACTIVATE,
    ADVANCE,
    BALANCE,
    CLUSTER,
    ELECT_UNCLEAN,
    FENCE_STALE,
    REPLAY,
    REQUEST_CODES,
    KafkaControllerProcess,
)
from ottla.controller.control import broker_heartbeat, elect_leaders
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionRegistration,
    merge_partition_change,
)
from ottla.controller.metadata.record_serde import decode_record, encode_record
from ottla.jobs.job import run_to_end
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.messages import alter_partition, broker_registration, list_partition_reassignments, metadata_records
from ottla.wire.messages import alter_partition_reassignments as reassignments
from ottla.wire.messages import assign_replicas_to_dirs as directories
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

START_MS = 1_000_000
BROKERS = 6
TOPICS = 4


def directory(broker: int, number: int = 0) -> bytes:
    """Return the id of one of a broker's directories."""
    return bytes(13) + bytes([7, broker, number + 1])


def normalize_records(records: Sequence[Message]) -> list[Message]:
    """Return records with each run of partition changes and the eligible leaders sorted: their order has no meaning."""
    out: list[Message] = []
    run: list[metadata_records.PartitionChangeRecord] = []
    for record in [*records, None]:
        if isinstance(record, metadata_records.PartitionChangeRecord):
            if record.eligible_leader_replicas is not None:
                record.eligible_leader_replicas = sorted(record.eligible_leader_replicas)
            run.append(record)
            continue
        out += sorted(run, key=lambda r: (r.topic_id, r.partition_id))
        run = []
        if record is not None:
            out.append(record)
    return out


class KafkaSideFailed(Exception):
    """Error: Kafka wrote a record that it cannot replay, so no later step can be compared."""


class ControllerRandomTest:
    """Random test of a controller from a seed."""

    def __init__(self, kafka: KafkaControllerProcess, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kafka = kafka
        self.machine = ControllerStateMachine(ControllerDefaults(), lambda: bytes(16), 0, CLUSTER)
        self.now_ms: float = START_MS
        self.steps = self.changes = 0
        self.cut_short = False
        self.requests: list[str] = []
        kafka.reset()
        levels = {"metadata.version": 30, "eligible.leader.replicas.version": self.rng.choice([0, 1, 1])}
        self.replay(*(metadata_records.FeatureLevelRecord(name, level) for name, level in levels.items() if level))
        if levels["eligible.leader.replicas.version"] or self.rng.random() < 0.5:
            self.replay(metadata_records.ConfigRecord(RESOURCE_BROKER, "", "min.insync.replicas", "1"))
        kafka.step(ACTIVATE)
        self.machine.activate(self.now_ms)

    @property
    def image(self) -> MetadataImage:
        """Return the common image of both sides."""
        return self.machine.image

    def _apply(self, records: Sequence[Message]) -> None:
        offset = self.image.offset + 1
        for number, record in enumerate(records):
            self.machine.replay(offset + number, decode_record(encode_record(record)))
        run_to_end(self.machine.complete_append(offset + len(records) - 1, 1))
        run_to_end(self.machine.publish())

    def replay(self, *records: Message) -> None:
        """Replay a record on both sides that is outside their decisions."""
        for record in records:
            self.kafka.step(REPLAY, 0, encode_record(record))
        self._apply(records)

    def pass_time(self, ms: int) -> None:
        """Advance the clock."""
        self.kafka.step(ADVANCE, 0, struct.pack(">q", ms))
        self.now_ms += ms

    def _assert_same_records(self, label: str, ours: Sequence[Message], theirs: Sequence[Message]) -> None:
        self.steps += 1
        self.changes += len(theirs)
        if any(self._names_removed_replica(record) for record in theirs):
            raise KafkaSideFailed
        assert normalize_records(ours) == normalize_records(theirs), self._recent_requests(
            f"{label}\nours   {ours}\nKafka's {theirs}"
        )

    def _names_removed_replica(self, record: Message) -> bool:
        """Return True if Kafka keeps a removed replica as eligible or last known leader."""
        if not isinstance(record, metadata_records.PartitionChangeRecord):
            return False
        topic = self.image.topic_by_id(record.topic_id)
        assert topic is not None
        after = merge_partition_change(topic.partitions[record.partition_id], record)
        return not {-1, *after.replicas}.issuperset((*after.elr, *after.last_known_elr))

    def _recent_requests(self, last: str) -> str:
        return "\n".join([*self.requests[-6:], last])

    def compare_request(self, request: Message) -> None:
        """Send a request to both sides."""
        self.requests.append(repr(request))
        value, version = REQUEST_CODES[type(request)]
        step = self.kafka.step(value, version, compiler.encode(request, version))
        if isinstance(request, BrokerHeartbeatRequest):
            self.machine.heartbeat_tracker.touch(request.broker_id, request.broker_epoch, self.now_ms)
        decided = self.machine.decide(request, version, self.image.offset + 1, self.now_ms)
        decision = decided if isinstance(decided, ControllerResult) else run_to_end(decided)
        self._assert_same_records(repr(request), decision.records, step.records)
        ours = decision.response
        assert getattr(ours, "error_code", 0) == step.error, self._recent_requests(
            f"{ours}\nKafka's error {step.error}"
        )
        if step.answer is not None and not step.error:
            theirs = compiler.decode(type(ours), version, step.answer)[0]
            fair = compiler.decode(type(ours), version, compiler.encode(ours, version))[0]
            assert _sorted(fair) == _sorted(theirs), self._recent_requests(f"ours   {fair}\nKafka's {theirs}")
        self._apply(decision.records)
        if isinstance(request, BrokerHeartbeatRequest) and ours.should_shut_down:
            self.machine.heartbeat_tracker.touch(request.broker_id, request.broker_epoch, self.now_ms)

    def fence_stale(self) -> None:
        """Fence brokers whose sessions have expired, until none is left."""
        while True:
            step = self.kafka.step(FENCE_STALE)
            changes = [r for r in step.records if isinstance(r, metadata_records.BrokerRegistrationChangeRecord)]
            fenced = [r.broker_id for r in changes]
            if fenced:
                broker = self.image.brokers[fenced[0]]
                assert not self.machine.heartbeat_tracker.has_valid_session(
                    broker.broker_id, broker.broker_epoch, self.now_ms
                )
                assert self.machine.heartbeat_tracker.last_contact_ms(broker.broker_id, broker.broker_epoch) is not None
                decision = run_to_end(broker_heartbeat.fence_broker(self.image, broker.broker_id, {}))
                self._assert_same_records(f"fence {fenced}", decision.records, step.records)
                self._apply(decision.records)
                self.machine.heartbeat_tracker.remove(broker.broker_id, broker.broker_epoch)
            if not step.error:
                break
        assert self.machine.heartbeat_tracker.next_expired_broker(self.image, self.now_ms) is None, (
            self._recent_requests("ours has a stale broker left")
        )

    def run_leader_task(self, call: int) -> None:
        """Run preferred or unclean leader election."""
        step = self.kafka.step(call)
        steps = (elect_leaders.balance_partition_leaders if call == BALANCE else elect_leaders.elect_unclean_leaders)(
            self.image, {}
        )
        decision = run_to_end(steps)
        self._assert_same_records("sweep", decision.records, step.records)
        self._apply(decision.records)

    # ------------------------------------------------------------------ steps

    def run_steps(self, steps: int) -> None:
        """Run so many steps."""
        happenings = [
            (14, self.send_heartbeat),
            (6, self.register),
            (5, self.make_topic),
            (14, self.alter_partition),
            (6, self.reassign),
            (4, self.elect),
            (3, self.change_config),
            (3, self.assign),
            (2, self.unregister),
            (4, lambda: self.pass_time(self.rng.choice([1, 500, 4_000, 9_001]))),
            (3, self.fence_stale),
            (1, lambda: self.run_leader_task(BALANCE)),
            (1, lambda: self.run_leader_task(ELECT_UNCLEAN)),
            (1, self.fail_over),
            (2, lambda: self.compare_request(list_partition_reassignments.ListPartitionReassignmentsRequest(1, None))),
        ]
        weights = [weight for weight, _ in happenings]
        try:
            for _ in range(steps):
                self.rng.choices(happenings, weights)[0][1]()
        except KafkaSideFailed:
            self.cut_short = True

    def _broker(self) -> int:
        return self.rng.randint(1, BROKERS)

    def register(self) -> None:
        """Register a broker, sometimes again or with an earlier epoch."""
        broker, rng = self._broker(), self.rng
        known = self.image.brokers.get(broker)
        again = known is not None and rng.random() < 0.1
        epoch = known.broker_epoch if known is not None and rng.random() < 0.6 else -1
        dirs = sorted(rng.sample([directory(broker, n) for n in range(3)], rng.randint(1, 3)))
        if rng.random() < 0.03:
            dirs = rng.choice([[], [dirs[0]] * 2, [bytes(16)], [directory(broker % BROKERS + 1)]])
        self.compare_request(
            broker_registration.BrokerRegistrationRequest(
                broker,
                CLUSTER if rng.random() < 0.98 else "other",
                known.incarnation_id if again and known is not None else rng.randbytes(15) + b"\x01",
                [broker_registration.Listener("PLAINTEXT", f"h{broker}", 9092, 0)],
                [broker_registration.Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
                rng.choice([None, "a", "b"]),
                log_dirs=dirs,
                previous_broker_epoch=epoch,
            )
        )

    def send_heartbeat(self) -> None:
        """Send the heartbeat of a broker, which may ask to be fenced or to stop."""
        broker, rng = self._broker(), self.rng
        known = self.image.brokers.get(broker)
        epoch = 5 if known is None else known.broker_epoch - (rng.random() < 0.03)
        wants_fence, wants_stop = rng.random() < 0.12, rng.random() < 0.2
        quiet = known is not None and not known.fenced and not wants_fence and not wants_stop
        offline = [d for d in (known.log_dirs if known else []) if rng.random() < 0.2] if quiet else []
        cordoned = rng.choice([None, None, [directory(broker, 0)], []])
        self.compare_request(
            BrokerHeartbeatRequest(
                broker,
                epoch,
                self.image.offset - (rng.randint(0, 30) if rng.random() < 0.3 else 0),
                wants_fence,
                wants_stop,
                offline,
                cordoned,
            )
        )

    def make_topic(self) -> None:
        """Create a topic with random replicas, if it does not exist."""
        name = f"t{self.rng.randrange(TOPICS)}"
        live = self.image.unfenced_brokers()
        if name in self.image.topics or not live:
            return
        topic_id = self.rng.randbytes(14) + b"\x01\x01"
        self.replay(metadata_records.TopicRecord(name, topic_id))
        for number in range(self.rng.randint(1, 3)):
            factor = self.rng.randint(1, min(4, len(self.image.brokers)))
            replicas = [self.rng.choice(live)]
            others = [i for i in self.image.brokers if i not in replicas]
            replicas += self.rng.sample(others, factor - 1)
            isr = [i for i in replicas if i in live]
            dirs = [self.image.brokers[i].log_dirs[0] for i in replicas]
            state = (replicas, isr, [], [], isr[0], 0, 0, 0)
            self.replay(metadata_records.PartitionRecord(number, topic_id, *state, directories=dirs))

    def change_config(self) -> None:
        """Change a setting of a topic."""
        name = f"t{self.rng.randrange(TOPICS)}"
        if name not in self.image.topics:
            return
        key, values = self.rng.choice(
            [("min.insync.replicas", ["1", "2", "3"]), ("unclean.leader.election.enable", ["true", "false"])]
        )
        self.replay(metadata_records.ConfigRecord(RESOURCE_TOPIC, name, key, self.rng.choice(values)))

    def _partition(self) -> tuple[str, bytes, int, PartitionRegistration] | None:
        if not self.image.topics:
            return None
        topic = self.image.topics[self.rng.choice(sorted(self.image.topics))]
        number = self.rng.choice(list(topic.partitions))
        return topic.name, topic.id, number, topic.partitions[number]

    def alter_partition(self) -> None:
        """Propose a random ISR for a partition."""
        found, rng = self._partition(), self.rng
        if found is None:
            return
        _, topic_id, number, p = found
        sender = p.leader if rng.random() < 0.95 else self._broker()
        known = self.image.brokers.get(sender)
        if known is None:
            return
        live = [i for i in p.replicas if i in self.image.unfenced_brokers()]
        isr = rng.sample(live, rng.randint(0, len(live))) if rng.random() < 0.5 else live
        if rng.random() < 0.05:
            isr = rng.choice([[*isr, sender], [9], list(p.replicas)])
        elif p.leader not in isr and rng.random() < 0.9:
            isr = [*isr, p.leader]
        states = [alter_partition.BrokerState(i, self._broker_epoch(i)) for i in isr]
        row = alter_partition.AlterPartitionRequestPartitionData(
            number if rng.random() < 0.97 else 8,
            p.leader_epoch + rng.choice([0] * 20 + [-1, 1]),
            [],
            states,
            p.recovering if rng.random() < 0.5 else rng.choice([0, 1]),
            p.partition_epoch + rng.choice([0] * 20 + [-1, 1]),
        )
        topics = [alter_partition.AlterPartitionRequestTopicData(topic_id if rng.random() < 0.98 else bytes(16), [row])]
        epoch = known.broker_epoch - (rng.random() < 0.02)
        self.compare_request(alter_partition.AlterPartitionRequest(sender, epoch, topics))

    def _broker_epoch(self, broker: int) -> int:
        known = self.image.brokers.get(broker)
        return -1 if known is None or self.rng.random() < 0.3 else known.broker_epoch - (self.rng.random() < 0.03)

    def reassign(self) -> None:
        """Start, replace or cancel the reassignment of a partition."""
        found, rng = self._partition(), self.rng
        if found is None:
            return
        name, _, number, p = found
        among = sorted(self.image.brokers) or [1]
        target: list[int] | None = rng.sample(among, rng.randint(1, min(4, len(among))))
        if rng.random() < 0.25:
            target = None
        elif rng.random() < 0.15:
            target = rng.sample(p.replicas, len(p.replicas))
        elif rng.random() < 0.05:
            target = rng.choice([[], [1, 1], [77]])
        rows = [reassignments.ReassignablePartition(number if rng.random() < 0.97 else 9, target)]
        topics = [reassignments.ReassignableTopic(name if rng.random() < 0.97 else "nowhere", rows)]
        self.compare_request(reassignments.AlterPartitionReassignmentsRequest(1, rng.random() < 0.8, topics))

    def elect(self) -> None:
        """Elect leaders for one partition or for all."""
        found, rng = self._partition(), self.rng
        if found is None:
            return
        named = None if rng.random() < 0.4 else [TopicPartitions(found[0], [found[2]])]
        self.compare_request(ElectLeadersRequest(rng.choice([0, 1]), named, 1))

    def assign(self) -> None:
        """Assign replicas of a partition to log directories."""
        found, rng = self._partition(), self.rng
        if found is None:
            return
        _, topic_id, number, p = found
        broker = rng.choice(p.replicas) if rng.random() < 0.9 else self._broker()
        known = self.image.brokers.get(broker)
        if known is None:
            return
        partitions = [directories.AssignReplicasToDirsRequestPartitionData(number)]
        topics = [directories.AssignReplicasToDirsRequestTopicData(topic_id, partitions)]
        dirs = [directories.AssignReplicasToDirsRequestDirectoryData(directory(broker, rng.randrange(3)), topics)]
        self.compare_request(directories.AssignReplicasToDirsRequest(broker, known.broker_epoch, dirs))

    def unregister(self) -> None:
        """Unregister a broker, in three of ten cases."""
        if self.rng.random() < 0.3:
            self.compare_request(UnregisterBrokerRequest(self._broker()))

    def fail_over(self) -> None:
        """Fail over to another controller: state in memory is lost."""
        self.requests.append("--- a new active controller")
        self.kafka.step(ACTIVATE)
        self.machine.activate(self.now_ms)


def _sorted(answer: Any) -> Any:
    """Return a response whose lists of topics and partitions are sorted."""
    if isinstance(answer, ElectLeadersResponse):
        answer.replica_election_results.sort(key=lambda t: t.topic)
        for topic in answer.replica_election_results:
            topic.partition_result.sort(key=lambda p: p.partition_id)
    if isinstance(answer, list_partition_reassignments.ListPartitionReassignmentsResponse):
        answer.topics.sort(key=lambda t: t.name)
        for listed in answer.topics:
            listed.partitions.sort(key=lambda p: p.partition_index)
    return answer
