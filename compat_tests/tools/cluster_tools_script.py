"""Calls of Kafka's tools for clusters, one after the other, against three nodes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from compat_tests.cluster.test_three_nodes import WITHIN_S, start_together, wait_for
from compat_tests.tools.cluster_tools_session import DIRECTORIES, KafkaTools, ToolsCluster

TOPIC, MOVE, ELECT = "TopicCommand", "reassign.ReassignPartitionsCommand", "LeaderElectionCommand"
QUORUM, FEATURES, CLUSTER, DIRS = "MetadataQuorumCommand", "FeatureCommand", "ClusterTool", "LogDirsCommand"


def cluster(t: KafkaTools) -> None:
    """Run the tools that list nodes, at brokers and controllers."""
    for at in (t.brokers, t.controllers):
        t.record(CLUSTER, "cluster-id", *at)
        t.record(CLUSTER, "list-endpoints", *at)
        t.record(CLUSTER, "list-endpoints", *at, "--include-fenced-brokers")
        t.record(CLUSTER, "unregister", *at, "--id", "9")
        for how in (["--status"], ["--replication"], ["--replication", "--human-readable"]):
            t.record(QUORUM, *at, "describe", *how)


def features(t: KafkaTools) -> None:
    """Run the tools for features and their changes."""
    for at in (t.brokers, t.controllers):
        t.record(FEATURES, *at, "describe")
        t.record(FEATURES, *at, "describe", "--node-id", "2")
        for words in (
            "upgrade --release-version 4.3-IV0 --dry-run",
            "upgrade --metadata 4.3-IV0",
            "upgrade --feature metadata.version=99 --dry-run",
            "upgrade --feature no.such=1",
            "upgrade --feature group.version=9",
            "downgrade --metadata 4.2-IV0 --dry-run",
            "downgrade --metadata 4.2-IV0 --unsafe --dry-run",
            "downgrade --metadata 3.3-IV3 --dry-run",
            "downgrade --release-version 4.1-IV1 --dry-run",
            "downgrade --feature kraft.version=0 --dry-run",
            "disable --feature kraft.version",
            "disable --feature metadata.version --dry-run",
            "disable --feature share.version --dry-run",
            "disable --feature no.such",
            "downgrade --feature transaction.version=1",
            "downgrade --feature eligible.leader.replicas.version=0",
            "describe",
            "upgrade --feature transaction.version=2 --feature eligible.leader.replicas.version=1",
            "upgrade --feature transaction.version=2",
        ):
            t.record(FEATURES, *at, *words.split())


def topics(t: KafkaTools) -> None:
    """Create, extend, describe and delete topics."""

    def topic(*words: str) -> None:
        t.record(TOPIC, *t.brokers, *words)

    topic("--list")
    topic("--create", "--topic", "a", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    topic("--create", "--topic", "b", "--replica-assignment", "1:2", "--config", "min.insync.replicas=2")
    topic("--create", "--topic", "c.d", "--replica-assignment", "3", "--config", "retention.ms=1000")
    topic("--create", "--topic", "e", "--replica-assignment", "2:1,1:2")
    topic("--create", "--topic", "of-all", "--partitions", "1", "--replication-factor", "3")
    for words in (
        "--topic a --partitions 1 --replication-factor 1",
        "--topic a --if-not-exists",
        "--topic f --partitions 1 --replication-factor 4",
        "--topic f --replica-assignment 1:9",
        "--topic f --partitions 1 --config min.insync.replicas=0",
        "--topic f --partitions 1 --config segment.bytes=1",
        "--topic c_d --partitions 1",
        "--topic ..",
        f"--topic {'f' * 250} --partitions 1",
    ):
        topic("--create", *words.split())
    t.wait_until_current()
    topic("--alter", "--topic", "a", "--partitions", "4", "--replica-assignment", "1:2:3,2:3:1,3:1:2,1:3:2")
    for words in (
        "a --partitions 2",
        "a --partitions 4",
        "nowhere --partitions 2",
        "nowhere --partitions 2 --if-exists",
    ):
        topic("--alter", "--topic", *words.split())
    topic("--alter", "--topic", "b", "--partitions", "2", "--replica-assignment", "1:2,1:9")
    t.wait_until_current()
    record_topic_lists(t)
    topic("--describe", "--topic", "nowhere")
    topic("--describe", "--topic", "nowhere", "--if-exists")
    topic("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAACQ")
    topic("--describe", "--topic", "[ab]", "--partition-size-limit-per-response", "1")
    topic("--delete", "--topic", "nowhere")
    topic("--delete", "--topic", "of-all")
    t.wait_until_current()
    topic("--list", "--exclude-internal")


def record_topic_lists(t: KafkaTools) -> None:
    """Record every list of topics."""
    for name in (
        "--list",
        "--describe --exclude-internal --topic [abce].*",
        "--describe --topics-with-overrides",
        "--describe --under-replicated-partitions",
        "--describe --unavailable-partitions",
        "--describe --under-min-isr-partitions",
        "--describe --at-min-isr-partitions",
    ):
        t.record(TOPIC, *t.brokers, *name.split())


def write_plan(
    t: KafkaTools, name: str, moves: dict[tuple[str, int], list[int]], log_dirs: list[str] | None = None
) -> str:
    """Write a file with the wanted replicas."""
    more = {} if log_dirs is None else {"log_dirs": log_dirs}
    rows = [{"topic": topic, "partition": number, "replicas": to, **more} for (topic, number), to in moves.items()]
    return t.write_json(name, {"version": 1, "partitions": rows})


def moves(t: KafkaTools) -> None:
    """Move replicas, validly and invalidly."""
    to_move = t.write_json("topics.json", {"topics": [{"topic": "a"}], "version": 1})
    t.record(MOVE, *t.brokers, "--generate", "--topics-to-move-json-file", to_move, "--broker-list", "1,9")
    nowhere = t.write_json("nowhere-topics.json", {"topics": [{"topic": "nowhere"}], "version": 1})
    t.record(MOVE, *t.brokers, "--generate", "--topics-to-move-json-file", nowhere, "--broker-list", "1,2")
    good = write_plan(t, "good.json", {("a", 0): [2, 3, 1], ("a", 1): [1, 2], ("a", 3): [3, 2], ("e", 0): [3, 1]})
    for at, more in ((t.brokers, ["--throttle", "10000000"]), (t.controllers, [])):
        t.record(MOVE, *at, "--execute", "--reassignment-json-file", good, *more)
        t.record(MOVE, *at, "--list", until_it=lambda text: "No partition reassignments" in text)
        t.wait_until_current()
        if at == t.brokers:
            t.record(MOVE, *at, "--verify", "--reassignment-json-file", good, "--preserve-throttles")
            t.record(MOVE, *at, "--verify", "--reassignment-json-file", good)
            t.wait_until_current()
            t.record(TOPIC, *t.brokers, "--describe", "--topic", "a")
    t.record(MOVE, *t.brokers, "--cancel", "--reassignment-json-file", good)
    for name, to in (
        ("nowhere.json", {("nowhere", 0): [1]}),
        ("no-partition.json", {("a", 9): [1]}),
        ("no-broker.json", {("a", 0): [1, 9]}),
        ("twice.json", {("a", 0): [1, 1]}),
        ("nobody.json", {("a", 0): []}),
    ):
        for label in ("--execute", "--verify", "--cancel"):
            # Without it broker 9 would be asked to delete its throttles, for a minute.
            more = [] if label == "--execute" else ["--preserve-throttles"]
            t.record(MOVE, *t.brokers, label, "--reassignment-json-file", write_plan(t, name, to), *more)
    own = write_plan(t, "dirs.json", {("b", 0): [1]}, [str(t.cluster.nodes[0].data_dir)])
    other = write_plan(t, "other-dirs.json", {("b", 0): [1]}, ["/nowhere"])
    for file in (own, other):
        t.record(MOVE, *t.brokers, "--verify", "--reassignment-json-file", file)
    both = write_plan(t, "both-dirs.json", {("b", 0): [1, 2]}, ["any", "any"])
    t.record(MOVE, *t.brokers, "--execute", "--reassignment-json-file", both)
    t.record(MOVE, *t.brokers, "--list", until_it=lambda text: "No partition reassignments" in text)
    t.wait_until_current()


def elections(t: KafkaTools) -> None:
    """Elect leaders, validly and invalidly."""
    t.record(TOPIC, *t.brokers, "--describe", "--topic", "a|e")
    preferred, unclean = ["--election-type", "preferred"], ["--election-type", "unclean"]
    t.record(ELECT, *t.brokers, *preferred, "--topic", "a", "--partition", "0")
    some = t.write_json("elect.json", {"partitions": [{"topic": "a", "partition": n} for n in (0, 1, 2)]})
    t.record(ELECT, *t.brokers, *preferred, "--path-to-json-file", some)
    for _ in range(2):
        t.record(ELECT, *t.brokers, *preferred, "--all-topic-partitions")
    t.record(ELECT, *t.brokers, *unclean, "--topic", "a", "--partition", "0")
    t.record(ELECT, *t.brokers, *unclean, "--all-topic-partitions")
    for topic, partition in (("a", "9"), ("nowhere", "0")):
        t.record(ELECT, *t.brokers, *preferred, "--topic", topic, "--partition", partition)
    t.wait_until_current()
    t.record(TOPIC, *t.brokers, "--describe", "--topic", "a|e")


def caught_up(text: str) -> bool:
    """Return True if every described replica has all records of its leader."""
    return not re.search(r'"offsetLag":[1-9]', text)


def sizes(t: KafkaTools) -> None:
    """Run the tools for log directories, once every replica has caught up."""
    producer = Producer({"bootstrap.servers": t.brokers[1], "acks": "all", "enable.idempotence": False})
    for number in range(4):
        producer.produce("a", b"v" * 100, b"k", partition=number)
    assert producer.flush(WITHIN_S) == 0
    for name in ([], ["--topic-list", "a,e"], ["--broker-list", "2,3"], ["--topic-list", "nowhere"]):
        t.record(DIRS, *t.brokers, "--describe", *name, until_it=caught_up)
    t.record(DIRS, *t.brokers, "--describe", "--broker-list", "1,9")


def has_caught_up(text: str) -> bool:
    """Check that a follower has caught up with its leader since the last election: until then its time is -1."""
    return re.search(r"\d\s+-1\s+Follower", text) is None


def is_behind(text: str) -> bool:
    """Check that an observer is there, and that it and the followers have caught up with the leader once."""
    return "Leader" in text and re.search(r"\s\d+\s+Observer", text) is not None and has_caught_up(text)


def controllers(t: KafkaTools) -> None:
    """Remove a controller from the quorum and add it again; try invalid changes."""
    settings = ["--command-config", str(t.cluster.nodes[2].file)]

    def out(controller: int, directory: str, *more: str) -> None:
        words = ["--controller-id", str(controller), "--controller-directory-id", directory, *more]
        t.record(QUORUM, *at, "remove-controller", *words)

    for at in (t.brokers, t.controllers):
        out(3, DIRECTORIES[2], "--dry-run")
        out(3, DIRECTORIES[1])
        out(9, DIRECTORIES[1])
        out(-1, DIRECTORIES[1])
        t.record(QUORUM, *at, *settings, "add-controller", "--dry-run")
        t.record(QUORUM, *at, *settings, "add-controller")
        out(3, DIRECTORIES[2])
        t.record(QUORUM, *at, "describe", "--replication", until_it=is_behind)
        t.record(QUORUM, *at, "describe", "--status")
        out(3, DIRECTORIES[2])
        t.record(CLUSTER, "list-endpoints", *t.controllers)
        t.record(QUORUM, *at, *settings, "add-controller")
        t.record(QUORUM, *at, "describe", "--replication", until_it=lambda text: "Observer" not in text)
        t.record(QUORUM, *at, "describe", "--status")


def broker_removal(t: KafkaTools) -> None:
    """Stop the third node, and unregister it."""
    t.stop_third_node()
    t.wait_until_current()
    for at in (t.brokers, t.controllers):
        t.record(CLUSTER, "list-endpoints", *at)
        t.record(QUORUM, *at, "describe", "--replication", until_it=has_caught_up)
        t.record(QUORUM, *at, "describe", "--status")
    t.record(CLUSTER, "list-endpoints", *t.fenced)
    record_topic_lists(t)
    t.record(TOPIC, *t.brokers, "--create", "--topic", "f", "--partitions", "1", "--replication-factor", "3")
    t.record(TOPIC, *t.brokers, "--create", "--topic", "h", "--replica-assignment", "3:1")
    t.record(TOPIC, *t.brokers, "--create", "--topic", "g", "--replica-assignment", "3")
    for kind in ("preferred", "unclean"):
        for words in ("--topic a --partition 2", "--topic c.d --partition 0", "--all-topic-partitions"):
            t.record(ELECT, *t.brokers, "--election-type", kind, *words.split())
    away = write_plan(t, "away.json", {("b", 0): [1, 3]})
    t.record(MOVE, *t.brokers, "--execute", "--reassignment-json-file", away)
    t.wait_until_current()
    for name in (["--list"], ["--verify", "--reassignment-json-file", away, "--preserve-throttles"]):
        t.record(MOVE, *t.brokers, *name)
    t.record(TOPIC, *t.brokers, "--describe", "--topic", "b")
    t.record(MOVE, *t.brokers, "--cancel", "--reassignment-json-file", away, "--preserve-throttles")
    t.record(MOVE, *t.controllers, "--list")
    t.record(DIRS, *t.brokers, "--describe", "--topic-list", "b")
    t.record(DIRS, *t.brokers, "--describe", "--broker-list", "3")
    t.record(CLUSTER, "unregister", *t.brokers, "--id", "3")
    t.wait_until_current()
    t.record(CLUSTER, "list-endpoints", *t.fenced)
    t.record(CLUSTER, "unregister", *t.controllers, "--id", "3")
    t.record(FEATURES, *t.brokers, "describe")
    t.record(TOPIC, *t.brokers, "--describe", "--topic", "a")
    t.record(TOPIC, *t.brokers, "--delete", "--topic", "[abceg].*")
    t.wait_until_current()
    t.record(TOPIC, *t.brokers, "--list")


PARTS: list[Callable[[KafkaTools], None]] = [
    cluster,
    features,
    topics,
    moves,
    elections,
    sizes,
    controllers,
    broker_removal,
]


def run_script(folder: Path, *, kafka: bool) -> list[str]:
    """Run the script of Kafka's tools against three new nodes; return the output."""
    three = ToolsCluster(folder, kafka=kafka)
    try:
        start_together(three.nodes)
        return _played(three, folder)
    finally:
        for node in three.nodes:  # the last Kafka node would wait for a controller that is gone
            node.kill()


def _played(three: ToolsCluster, folder: Path) -> list[str]:
    with contextlib.closing(KafkaTools(three, folder)) as tools:
        endpoints, quorum = ["list-endpoints", *tools.fenced], [*tools.brokers, "describe", "--replication"]
        wait_for(lambda: sum(" unfenced " in x for x in tools.run(CLUSTER, *endpoints)) == 3)
        wait_for(lambda: sum("Follower" in x for x in tools.run(QUORUM, *quorum)) == 2)
        tools.wait_until_current()
        for part in PARTS:
            tools.transcript.append(f"# {part.__name__}")
            part(tools)
        return tools.transcript
