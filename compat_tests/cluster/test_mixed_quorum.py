"""Quorum of both kinds: an Apache Kafka controller joins Ottla's voters, becomes leader, and is removed."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.cluster.test_mixed_cluster import FOR_S, running_stock_producers
from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import NodeProcess, java_tool

KAFKA = 4
"""The node id of the real controller."""
WITHIN_S = 300.0
LEADER_CHANGES = 40
"""Limit of elections: the winner is random, and Kafka is slow to start an election on a busy machine."""


def wait_for(action: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """Return the result of a call once it is true."""
    deadline = time.monotonic() + within_s
    while not (found := action()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.2)
    return found


class KafkaController(NodeProcess):
    """Kafka controller that is configured with the bootstrap controllers only."""

    def __init__(self, folder: Path, cluster_id: str, controllers: str) -> None:
        super().__init__(folder / "kafka")
        jars("kafka")
        self.config = folder / "kafka.properties"
        self.config.write_text(
            f"process.roles=controller\nnode.id={KAFKA}\nlog.dirs={self.data_dir}\n"
            f"controller.quorum.bootstrap.servers={controllers}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{self.port}\n"
        )
        java_tool(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.config), "--no-initial-controllers"
        )

    @property
    def directory_id(self) -> str:
        """Return the directory id in its ``meta.properties``."""
        return property_of(self.data_dir, "directory.id")

    @property
    def has_ended(self) -> bool:
        """Return True when the process has ended by itself."""
        assert self._process is not None
        return self._process.poll() is not None

    def command(self) -> list[str]:
        """Return the command line."""
        return ["java", "-Xmx256m", "-cp", classpath(), "kafka.Kafka", str(self.config)]


def property_of(data_dir: Path, name: str) -> str:
    """Return a value of a ``meta.properties``."""
    lines = (data_dir / "meta.properties").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith(f"{name}="))


def quorum(controllers: str) -> tuple[int, list[int]]:
    """Return the leader and the voters as Kafka's tool prints them; (-1, []) while it reaches no controller."""
    try:
        output = java_tool("MetadataQuorumCommand", "--bootstrap-controller", controllers, "describe", "--status")
    except (AssertionError, subprocess.TimeoutExpired):
        return -1, []
    leader = re.search(r"LeaderId:\s+(\d+)", output)
    assert leader is not None, output
    return int(leader[1]), [int(x) for x in re.findall(r'"id": (\d+)', output.split("CurrentObservers")[0])]


def make_topic(bootstrap: str, name: str, copies: int) -> None:
    """Create a topic, retrying while there is no controller."""

    def made() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (future,) = admin.create_topics([NewTopic(name, 1, copies)], request_timeout=5).values()
        try:
            future.result(10)
        except Exception as error:
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True

    wait_for(made)


def test_kafka_controller_joins_ottla_voters_leads_and_is_removed(tmp_path: Path) -> None:
    with ottla.Cluster(3, data_dir=str(tmp_path / "ottla")) as cluster:
        controllers = ",".join(f"127.0.0.1:{node.controller_port}" for node in cluster.nodes)
        make_topic(cluster.bootstrap_servers, "first", 3)
        cluster_id = property_of(Path(cluster.node(1).data_dir), "cluster.id")
        kafka = KafkaController(tmp_path, cluster_id, controllers)
        with kafka, running_stock_producers(cluster.bootstrap_servers):
            tool = ("MetadataQuorumCommand", "--bootstrap-controller", controllers)
            wait_for(lambda: re.search(rf"^{KAFKA} .*Observer", java_tool(*tool, "describe", "--replication"), re.M))
            assert "Added controller" in java_tool(*tool, "--command-config", str(kafka.config), "add-controller")
            assert sorted(wait_for(lambda: quorum(controllers)[1])) == [1, 2, 3, KAFKA]
            decided = leaders_in_turn(cluster, kafka, controllers, time.monotonic() + FOR_S)
            assert KAFKA in decided, f"it was never elected: {decided}"
            for client in (KAFKA, next(n for n in decided if n != KAFKA)):
                where = kafka.data_dir if client == KAFKA else Path(cluster.node(client).data_dir)
                key = ("--controller-id", str(client), "--controller-directory-id", property_of(where, "directory.id"))
                wait_for(lambda key=key: "Removed" in java_tool(*tool, "remove-controller", *key))  # type: ignore[misc]
                wait_for(lambda client=client: client not in (found := quorum(controllers)[1]) and found)  # type: ignore[misc]
            make_topic(cluster.bootstrap_servers, "last", 3)
            assert not kafka.has_ended
        log = kafka.log.read_text()
        assert "fatal fault" not in log
        assert " FATAL " not in log
        for node in cluster.nodes:
            assert "Traceback" not in Path(node.log).read_text()


def leaders_in_turn(cluster: ottla.Cluster, kafka: KafkaController, controllers: str, until_s: float) -> list[int]:
    """Kill the leader repeatedly until both kinds have led and the time is over; return the leaders."""
    decided: list[int] = []
    for turn in itertools.count():
        leader = wait_for(lambda: max(0, quorum(controllers)[0]))
        make_topic(cluster.bootstrap_servers, f"made-by-{leader}-in-turn-{turn}", 2)
        decided.append(leader)
        if time.monotonic() >= until_s and (turn + 1 >= LEADER_CHANGES or (KAFKA in decided and len(decided) > 3)):
            break
        assert not kafka.has_ended, kafka.log.read_text()[-4000:]
        if leader == KAFKA:
            kafka.kill()
            make_topic(cluster.bootstrap_servers, f"after-{turn}", 2)
            kafka.start()
        else:
            cluster.kill(leader)
            make_topic(cluster.bootstrap_servers, f"after-{turn}", 2)
            cluster.restart(leader)
    return decided
