"""``ottla group`` against a node and against Kafka, compared with Kafka's tools for groups."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer

from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import OTTLA, KafkaProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.controller.metadata.image import RESOURCE_GROUP
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import find_coordinator, incremental_alter_configs, streams_group_heartbeat

pytestmark = pytest.mark.xdist_group(__name__)
WITHIN_S = 180.0
RECORDS = 30


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    kind = OttlaProcess if request.param == "ottla" else KafkaProcess
    settings = {
        "group_streams_initial_rebalance_delay_ms": "0",
        "share_coordinator_state_topic_replication_factor": "1",
    }
    settings |= {"share_coordinator_state_topic_min_isr": "1"} if request.param == "kafka" else {}
    with kind(tmp_path_factory.mktemp(request.param) / "data", **settings) as process:
        yield process


def ottla(*arguments: str, stdin: str = "", status: int = 0) -> str:
    done = subprocess.run([OTTLA, *arguments], input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


def rows(*arguments: str) -> Any:
    return json.loads(ottla(*arguments, "-o", "json"))


def described(node: Any, group: str, *more: str) -> dict[str, Any]:
    (row,) = rows("group", "describe", group, *more, "-b", node.bootstrap)
    return dict(row)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def make(node: Any, topic: str) -> None:
    ottla("topic", "create", topic, "--partitions", "2", "-b", node.bootstrap)


def fill(node: Any, topic: str) -> None:
    lines = "".join(f"key-{number % 10}:{number}\n" for number in range(RECORDS))
    ottla("produce", topic, "--key-separator", ":", "-b", node.bootstrap, stdin=lines)


def theirs(node: Any, *commands: str) -> list[set[tuple[str, int, int]]]:
    """Return the offsets that Kafka's tools would set: topic, partition, new offset."""
    jars("kafka")
    source = Path(__file__).parent.parent / "java" / "GroupTools.java"
    text = "".join(f"{command} --bootstrap-server {node.bootstrap}\n" for command in commands)
    done = subprocess.run(
        ["java", "-cp", classpath(), str(source)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = done.stdout.split("== end\n")[:-1]
    assert len(answers) == len(commands), done.stdout
    lines = [[line.split() for line in answer.splitlines()] for answer in answers]
    return [{(w[1], int(w[2]), int(w[3])) for w in fields if len(w) == 4 and w[2].isdecimal()} for fields in lines]


MODES = [
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset 4",
    "--to-offset 4000",
    "--shift-by -3",
    "--to-datetime 2020-01-31T00:00:00.000",
    "--to-datetime 2099-01-31T00:00:00.000",
    "--by-duration PT0.1S",
    "--by-duration P7D",
]


def test_ottla_group_describes_resets_and_deletes_consumer_group(node: Any, tmp_path: Path) -> None:
    at = ["-b", node.bootstrap]
    make(node, "events")
    fill(node, "events")
    config = {"bootstrap.servers": node.bootstrap, "group.id": "billing", "group.protocol": "consumer"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    assert len(consumer.consume(RECORDS, WITHIN_S)) == RECORDS
    consumer.commit(asynchronous=False)
    seen = described(node, "billing")
    (member,) = seen["members"]
    assert (seen["type"], seen["state"], seen["assignor"]) == ("consumer", "Stable", "uniform")
    assert member["epoch"] == seen["epoch"] == seen["target_epoch"]
    assert member["assignment"] == member["target"] == {"events": [0, 1]}
    assert [(row["lag"], row["member"]) for row in seen["positions"]] == [(0, member["member"])] * 2
    ends = {row["partition"]: row["end"] for row in seen["positions"]}
    assert "is Stable" in ottla("group", "reset", "billing", "--all-topics", "--to-earliest", *at, status=1)
    assert "group" in ottla("group", "delete", "billing", *at, status=1)
    consumer.close()

    common = "consumer.group.ConsumerGroupCommand --reset-offsets --dry-run --group"
    answers = theirs(
        node,
        *(f"{common} {group} --topic events {mode}" for group in ("billing", "new") for mode in MODES[:5]),
        *(f"{common} billing --topic events:1 {mode}" for mode in MODES),
    )
    requests = [(group, "events", mode) for group in ("billing", "new") for mode in MODES[:5]]
    requests += [("billing", "events:1", mode) for mode in MODES]
    for (group, topic, mode), expected in zip(requests, answers, strict=True):
        ours = rows("group", "reset", group, "--topic", topic, *mode.split(), *at)
        assert {(row["topic"], row["partition"], row["new"]) for row in ours} == expected, (group, topic, mode)
        assert expected
    assert {row["partition"]: row["position"] for row in described(node, "billing")["positions"]} == ends

    plan = tmp_path / "plan"
    plan.write_text(ottla("group", "reset", "billing", "--all-topics", "--shift-by", "-3", "--export", *at))
    ottla("group", "reset", "billing", "--from-file", str(plan), "--execute", *at)
    assert [row["lag"] for row in described(node, "billing")["positions"]] == [3, 3]
    rows("group", "delete-offsets", "billing", "--topic", "events:0", *at)
    assert [row["partition"] for row in described(node, "billing")["positions"]] == [1]
    listed = {row["group"]: row for row in rows("group", "list", "--type", "consumer", "--state", "empty", *at)}
    assert listed["billing"]["state"] == "Empty"
    ottla("group", "delete", "billing", *at)
    assert "billing" in ottla("group", "describe", "billing", *at, status=1)


def test_ottla_group_describe_of_classic_group_lists_assignments(node: Any) -> None:
    make(node, "older")
    fill(node, "older")
    config = {"bootstrap.servers": node.bootstrap, "group.id": "ledger", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe(["older"])
    assert len(consumer.consume(RECORDS, WITHIN_S)) == RECORDS
    seen = described(node, "ledger")
    assert (seen["type"], seen["state"], seen["assignor"], seen["epoch"]) == ("classic", "Stable", "range", None)
    assert [row["assignment"] for row in seen["members"]] == [{"older": [0, 1]}]
    assert [(row["position"], row["member"]) for row in seen["positions"]] == [(None, seen["members"][0]["member"])] * 2
    consumer.close()


def consume_and_describe(node: Any, consumer: ShareConsumer) -> None:
    """Accept four records and release three; verify the description of the group."""
    got: list[Any] = []

    def has_all() -> bool:
        got.extend(consumer.poll(0.5))
        return len(got) >= 4

    until(has_all)
    for number, message in enumerate(got[:4]):
        consumer.acknowledge(message, AcknowledgeType.ACCEPT if number == 2 else AcknowledgeType.RELEASE)
    consumer.commit_sync(10.0)
    seen = described(node, "kitchen", "--records")
    (member,) = seen["members"]
    assert (seen["type"], seen["state"], member["assignment"]) == ("share", "Stable", {"orders": [0, 1]})
    (row,) = [row for row in seen["positions"] if row["end"]]
    assert (row["start"], row["end"], row["lag"], row["done"]) == (0, 4, 3, 1)
    stored = [(x["first"], x["last"], x["state"], x["deliveries"]) for x in seen["records"]]
    assert stored == [(0, 1, "available", 1), (2, 2, "acknowledged", 1), (3, 3, "available", 1)]
    assert "is Stable" in ottla("group", "reset", "kitchen", "--to-latest", "-b", node.bootstrap, status=1)


def test_ottla_group_describes_resets_and_deletes_share_group(node: Any) -> None:
    at = ["-b", node.bootstrap]
    make(node, "orders")
    earliest = incremental_alter_configs.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    resource = incremental_alter_configs.AlterConfigsResource(RESOURCE_GROUP, "kitchen", [earliest])
    RawClient(node.port).call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
    )
    ottla("produce", "orders", "--key-separator", ":", *at, stdin="k:0\nk:1\nk:2\nk:3\n")
    config: dict[str, Any] = {"bootstrap.servers": node.bootstrap, "group.id": "kitchen"}
    with ShareConsumer({**config, "share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.subscribe(["orders"])
        consume_and_describe(node, consumer)
    until(lambda: described(node, "kitchen")["state"] == "Empty")
    assert "share group" in ottla("group", "reset", "kitchen", "--shift-by", "1", *at, status=1)
    tool = "consumer.group.ShareGroupCommand --reset-offsets --dry-run --group kitchen --topic orders"
    modes = ["--to-earliest", "--to-latest", "--to-datetime 2020-01-31T00:00:00.000"]
    for mode, expected in zip(modes, theirs(node, *(f"{tool} {mode}" for mode in modes)), strict=True):
        ours = rows("group", "reset", "kitchen", "--topic", "orders", *mode.split(), *at)
        assert {(row["topic"], row["partition"], row["new"]) for row in ours} == expected, mode
    ottla("group", "reset", "kitchen", "--to-latest", "--execute", *at)
    assert {row["lag"] for row in described(node, "kitchen")["positions"]} == {0}
    ottla("group", "delete-offsets", "kitchen", "--topic", "orders", *at)
    assert described(node, "kitchen")["positions"] == []
    ottla("group", "delete", "kitchen", *at)
    assert "kitchen" not in [row["group"] for row in rows("group", "list", *at)]
    ottla("group", "reset", "canteen", "--share", "--topic", "orders:1", "--to-earliest", "--execute", *at)
    seen = described(node, "canteen")
    assert (seen["type"], seen["state"]) == ("share", "Empty")
    assert [(row["partition"], row["start"]) for row in seen["positions"]] == [(1, 0)]


def test_ottla_group_describes_and_deletes_streams_group(node: Any) -> None:
    at = ["-b", node.bootstrap]
    make(node, "lines")
    fill(node, "lines")
    reads = streams_group_heartbeat.Topology(
        0,
        [
            streams_group_heartbeat.Subtopology(
                "0", ["lines"], state_changelog_topics=[streams_group_heartbeat.TopicInfo("words-log-changelog")]
            )
        ],
    )
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        "words", "m", 0, rebalance_timeout_ms=30_000, topology=reads
    )
    request.process_id, request.active_tasks, request.standby_tasks, request.warmup_tasks = "p", [], [], []
    raw = RawClient(node.port)
    raw.call(
        ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest("", 0, ["words"])
    )  # creates __consumer_offsets

    def has_tasks() -> bool:
        nonlocal request
        answer = raw.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)
        if answer.error_code or answer.active_tasks:
            return bool(answer.active_tasks)
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest("words", "m", answer.member_epoch)
        return False

    until(has_tasks)
    seen = described(node, "words")
    assert (seen["type"], seen["state"]) == ("streams", "Stable")
    assert [(row["subtopology"], row["reads"]) for row in seen["topology"]] == [("0", ["lines"])]
    assert [(row["active"], row["target_active"]) for row in seen["members"]] == [({"0": [0, 1]}, {"0": [0, 1]})]
    assert [(row["position"], row["lag"], row["member"]) for row in seen["positions"]] == [
        (None, row["end"], "m") for row in seen["positions"]
    ]
    assert sum(row["lag"] for row in seen["positions"]) == RECORDS
    raw.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, streams_group_heartbeat.StreamsGroupHeartbeatRequest("words", "m", -1))
    assert "is not subscribed to" in ottla("group", "reset", "words", "--topic", "lines", "--to-latest", *at, status=1)
    assert "words-log-changelog" in [row["topic"] for row in rows("topic", "list", *at)]
    ottla("group", "delete", "words", "--internal-topics", *at)
    assert "words-log-changelog" not in [row["topic"] for row in rows("topic", "list", *at)]
