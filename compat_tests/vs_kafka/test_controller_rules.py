"""Comparison of controller rules with Kafka's classes on equal random numbers: placement, partition changes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.support.jars import classpath, jars
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration
from ottla.controller.partitions.partition_change_builder import (
    PartitionChangeRules,
    PartitionElection,
    build_partition_change,
)
from ottla.controller.partitions.reassignment_state import Reassignment
from ottla.controller.partitions.replica_placer import StripedReplicaPlacer
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import metadata_records

CLUSTERS = 3_000
CHANGES = 40_000


JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options of a short program: by default its heap grows to a quarter of the machine's memory."""


def run_kafka_rules(program: str, lines: list[str]) -> list[str]:
    """Return the output of a Java program for each line."""
    jars("kafka")
    source = Path(__file__).parent.parent / "java" / program
    text = "".join(f"{line}\n" for line in lines)
    command = ["java", *JAVA_OPTIONS, "-cp", classpath(), str(source)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


# ------------------------------------------------------------------ placement


class RandomPlacementCluster(NamedTuple):
    """Brokers as (id, rack, fenced), the request, and the constant result of the random generator."""

    random_value: float
    partitions: int
    factor: int
    brokers: list[tuple[int, str | None, bool]]

    @property
    def to_request_text(self) -> str:
        rows = ",".join(f"{i}:{rack or '-'}:{int(fenced)}" for i, rack, fenced in self.brokers)
        return f"{self.random_value!r} {self.partitions} {self.factor} {rows}"

    def placement_text(self) -> str:
        brokers = {
            i: metadata_records.RegisterBrokerRecord(
                i, False, bytes(16), 0, [], [], rack, fenced, False, [bytes([i] * 16)]
            )
            for i, rack, fenced in self.brokers
        }
        try:
            placer = StripedReplicaPlacer(MetadataImage(brokers=brokers), self.factor, lambda: self.random_value)
            return " ".join(",".join(map(str, placer.place_next())) for _ in range(self.partitions))
        except ProtocolError as error:
            return "".join(word.title() for word in error.code.name.split("_")) + "Exception"


def some_cluster(rng: random.Random) -> RandomPlacementCluster:
    racks = rng.choice([[None], ["a", "b"], ["a", "b", "c"], [None, "b", "a"]])
    ids = rng.sample(range(1, 40), rng.randint(1, 9))
    fenced = rng.choice([0, 0.3, 0.9])
    brokers = [(i, rng.choice(racks), rng.random() < fenced) for i in ids]
    return RandomPlacementCluster(
        rng.choice([0.0, 0.25, 0.5, 0.75, 0.99]), rng.randint(1, 25), rng.randint(1, 5), brokers
    )


def test_replica_placement_on_random_clusters_equals_kafka() -> None:
    """Replica placement (R-299)."""
    rng = random.Random(1)
    clusters = [some_cluster(rng) for _ in range(CLUSTERS)]
    theirs = run_kafka_rules("ReplicaPlacement.java", [c.to_request_text for c in clusters])
    wrong = [
        (c.to_request_text, c.placement_text(), t)
        for c, t in zip(clusters, theirs, strict=True)
        if c.placement_text() != t
    ]
    assert not wrong, wrong[:3]
    assert sum("," in t for t in theirs) > CLUSTERS / 3


# ------------------------------------------------------------------ partitions


class PartitionChangeCase(NamedTuple):
    """Partition, live brokers, rules, and requested change."""

    partition: PartitionRegistration
    alive: list[int]
    rules: PartitionChangeRules
    election: PartitionElection
    isr: list[int] | None
    move: Reassignment | None
    lost: list[int] | None
    recovery: int | None
    directories: dict[int, int]

    @property
    def to_request_text(self) -> str:
        p, move = self.partition, self.move
        pairs = ",".join(f"{i}={d}" for i, d in self.directories.items()) or "-"
        parts = [p.replicas, p.isr, p.elr, p.last_known_elr, p.adding, p.removing, [number(d) for d in p.directories]]
        words = [text(x) for x in parts] + [str(p.leader), str(p.recovering), text(self.alive)]
        words += [str(self.rules.min_isr), str(int(self.rules.is_elr_enabled)), self.election.name, text(self.isr)]
        words += [text(x) for x in ((move.replicas, move.adding, move.removing) if move else (None, None, None))]
        words += [text(self.lost), "-" if self.recovery is None else str(self.recovery), pairs]
        return " ".join(words)

    def change_text(self) -> str:
        moved = {i: directory(d) for i, d in self.directories.items()}
        if self.move is not None:
            new = [i for i in self.move.replicas if i not in self.partition.replicas and i not in moved]
            moved.update((i, directory(900 + i)) for i in new)
        r = build_partition_change(
            (bytes(16), 3),
            self.partition,
            lambda i: i in self.alive,
            self.rules,
            election=self.election,
            isr=self.isr,
            move=self.move,
            lost=self.lost or (),
            directories=moved,
            recovery=self.recovery,
        )
        if r is None:
            return "none"
        dirs = None if r.directories is None else [number(d) for d in r.directories]
        lists: list[Any] = [r.isr, r.eligible_leader_replicas, r.last_known_elr, r.replicas]
        lists += [r.adding_replicas, r.removing_replicas, dirs]
        return " ".join([str(r.leader), *(text(x) for x in lists), str(r.leader_recovery_state)])


def directory(number: int) -> bytes:
    return (7).to_bytes(8, "big") + number.to_bytes(8, "big")


def number(directory: bytes) -> int:
    return int.from_bytes(directory[8:], "big")


def text(values: Sequence[int] | None) -> str:
    if values is None:
        return "-"
    return ",".join(map(str, values)) or "_"


def some_of(rng: random.Random, values: Sequence[int], least: int = 0) -> list[int]:
    return rng.sample(list(values), rng.randint(min(least, len(values)), len(values)))


def some_case(rng: random.Random) -> PartitionChangeCase:
    replicas = rng.sample(range(1, 7), rng.randint(1, 4))
    isr = some_of(rng, replicas)
    elr = some_of(rng, [i for i in replicas if i not in isr]) if rng.random() < 0.5 else []
    moving = rng.random() < 0.3
    adding, removing = (some_of(rng, replicas) if moving and rng.random() < 0.7 else [] for _ in range(2))
    p = PartitionRegistration(
        tuple(replicas),
        tuple(isr),
        rng.choice([-1, *replicas]),
        1,
        1,
        tuple(directory(100 + i) for i in replicas),
        tuple(removing),
        tuple(adding),
        rng.choice([0, 0, 1]),
        tuple(sorted(elr)),
        tuple(some_of(rng, replicas)[: rng.choice([0, 1, 1, 2])]),
    )
    wanted = some_of(rng, replicas) if rng.random() < 0.6 else None
    move = None
    if rng.random() < 0.4:
        target = rng.sample(range(1, 7), rng.randint(1, 4))
        gone = sorted(set(replicas) - set(target))
        came = sorted(set(target) - set(replicas))
        stay = [i for i in replicas if i in target]
        keep = not stay or rng.random() < 0.7
        # as in a cancelled reassignment: at least one replica is in sync
        wanted = wanted if keep else some_of(rng, stay, 1)
        move = Reassignment((*target, *gone) if keep else tuple(target), tuple(came), tuple(gone) if keep else ())
    moved = {i: 500 + i for i in some_of(rng, replicas)} if rng.random() < 0.2 else {}
    return PartitionChangeCase(
        p,
        some_of(rng, range(1, 7)),
        PartitionChangeRules(rng.randint(1, 3), rng.random() < 0.7),
        rng.choice(list(PartitionElection)),
        wanted,
        move,
        some_of(rng, replicas) if rng.random() < 0.2 else None,
        rng.choice([None, None, 0, 1]),
        moved,
    )


def names_removed_replica(requested: str, theirs: str) -> bool:
    """Return True if Kafka keeps a removed replica as eligible or last known leader, which is dropped here."""
    words, record = requested.split(), ["-"] * 9 if theirs == "none" else theirs.split()
    stay = {"_", "-1", *(words[0] if record[4] == "-" else record[4]).split(",")}
    last = words[3] if record[3] == "-" else record[3]
    reported = [words[2], last, *(record[2:3] if record[2] != "-" else [])]
    return any(not stay.issuperset(ids.split(",")) for ids in reported)


def test_partition_change_on_random_partitions_equals_kafka() -> None:
    """Partition changes (R-284, R-285, R-287 to R-289, R-296)."""
    rng = random.Random(2)
    cases = [some_case(rng) for _ in range(CHANGES)]
    theirs = run_kafka_rules("PartitionChanges.java", [c.to_request_text for c in cases])
    wrong = [
        (c.to_request_text, c.change_text(), t) for c, t in zip(cases, theirs, strict=True) if c.change_text() != t
    ]
    wrong = [row for row in wrong if not names_removed_replica(row[0], row[2])]
    assert not wrong, (len(wrong), wrong[:3])
    assert len(set(theirs)) > CHANGES / 10
