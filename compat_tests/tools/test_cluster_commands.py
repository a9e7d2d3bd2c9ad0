"""`ottla cluster` and `ottla.Cluster`: nodes as processes, from nothing to a clean stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.support.processes import OTTLA, free_port
from compat_tests.support.round_trip import round_trip
from ottla.cluster import ClusterFailed


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, and what it says until it is ready."""
    process = subprocess.Popen([OTTLA, "cluster", "start", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Kafka Server started" in line:
                break
        yield process, said
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_started_cluster_says_where_its_nodes_are_and_takes_them_along_when_it_stops(tmp_path: Path) -> None:
    port = free_port()
    with started("--nodes", "1", "--data-dir", str(tmp_path / "d"), "--port", str(port)) as (process, said):
        assert said[0].startswith(f"node 1: 127.0.0.1:{port}, data in {tmp_path / 'd'}/node-1, process ")
        assert round_trip(f"127.0.0.1:{port}", "t") == b"hello"
        status = subprocess.run(
            [OTTLA, "cluster", "status", "-b", f"127.0.0.1:{port}", "-o", "json"], capture_output=True, check=True
        )
        (row,) = json.loads(status.stdout)
        assert (row["node"], row["broker"], row["quorum"]) == (1, "alive", "leader")
        node = int(said[0].rsplit(" ", 1)[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not is_alive(node)


def test_a_cluster_whose_last_node_is_gone_ends(tmp_path: Path) -> None:
    with started("--nodes", "1", "--data-dir", str(tmp_path / "d"), "--port", str(free_port())) as (process, said):
        os.kill(int(said[0].rsplit(" ", 1)[1]), signal.SIGKILL)
        assert process.wait(30) == 1


def test_a_node_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        cluster = ottla.Cluster(1, data_dir=str(tmp_path / "d"), port=port)
        with pytest.raises(
            ClusterFailed, match=f"node 1 ended with status 2: ottla serve: Socket server failed to bind to .*:{port}"
        ):
            cluster.start()
        done = subprocess.run(
            [OTTLA, "cluster", "start", "--nodes", "1", "--data-dir", str(tmp_path / "d"), "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    start = "ottla cluster: node 1 ended with status 2: ottla serve: Socket server failed to bind"
    assert done.stderr.startswith(start)
    assert done.stderr.count("\n") == 1


def test_a_node_that_was_killed_comes_back_with_what_it_had() -> None:
    with ottla.Cluster(1) as cluster:
        assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
        cluster.kill(1)
        assert cluster.nodes[0].status == -signal.SIGKILL
        assert cluster.nodes[0].pid is None
        cluster.restart(1)
        assert round_trip(cluster.bootstrap_servers, "t", b"other") == b"other", "the group goes on where it was"
        folder = Path(cluster.nodes[0].data_dir)
        assert folder.exists()
    assert not folder.exists()


PLUGIN_TEST = """
import time
from confluent_kafka.admin import AdminClient

def test_three(kafka_cluster):
    client = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    deadline = time.monotonic() + 60  # each serves, and hears of the others a moment later
    while len(client.list_topics(timeout=30).brokers) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(client.list_topics(timeout=30).brokers) == [1, 2, 3]
    kafka_cluster.kill(1)
    kafka_cluster.restart(1)
"""


def test_the_fixture_gives_three_nodes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_cluster_started_with_more_nodes_than_before_has_them_as_brokers(tmp_path: Path) -> None:
    with ottla.Cluster(1, data_dir=str(tmp_path / "d")) as cluster:
        assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
    with ottla.Cluster(2, data_dir=str(tmp_path / "d")) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        deadline = time.monotonic() + 60  # each serves, and hears of the other a moment later
        while len(client.list_topics(timeout=30).brokers) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sorted(client.list_topics(timeout=30).brokers) == [1, 2]
        client.create_topics([NewTopic("u", 1, 2)])["u"].result(30)
        assert round_trip(cluster.bootstrap_servers, "u") == b"hello"


def cluster_verb(bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``ottla cluster``, with what it prints as JSON."""
    command = [OTTLA, "cluster", *words, "-b", bootstrap, "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_node_is_removed_for_good_and_what_it_had_lies_elsewhere() -> None:
    with ottla.Cluster(3) as cluster:
        everybody = cluster.bootstrap_servers
        last = cluster.nodes[2]
        client = AdminClient({"bootstrap.servers": everybody})
        client.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
        assert round_trip(everybody, "t") == b"hello"
        refused = cluster_verb(everybody, "remove", "7")
        assert (refused.returncode, refused.stderr) == (1, "ottla: no node 7 in this cluster\n")
        plan = json.loads(cluster_verb(everybody, "remove", "3", "--fewer-copies", "--dry-run").stdout)
        assert [row["step"] for row in plan[-3:]] == ["stop", "take the vote of", "strike off"]
        # Asked over the very node that goes.
        command = [OTTLA, "cluster", "remove", "3", "-b", last.bootstrap_servers, "-o", "json", "--fewer-copies"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as removing:
            assert removing.stderr is not None
            assert removing.stderr.readline() == "node 3 holds nothing any more: stop it now\n"
            cluster.kill(3)
            out, err = removing.communicate(timeout=180)
        assert (removing.returncode, err) == (0, "")
        assert json.loads(out) == [{"removed": 3}]
        rows = json.loads(cluster_verb(everybody, "status").stdout)
        assert [(row["node"], row["broker"]) for row in rows if row["broker"] != "-"] == [(1, "alive"), (2, "alive")]
        assert all(row["quorum"] == "observer" for row in rows if row["node"] == 3), "remembered for a while"
        assert all(row["not in sync"] == 0 for row in rows)
        assert sum(row["replicas"] for row in rows) >= 8
        assert round_trip(everybody, "t", b"more") == b"more"


def test_one_controller_that_is_left_goes_on_alone_and_takes_others_in_again(tmp_path: Path) -> None:
    with ottla.Cluster(3, data_dir=str(tmp_path / "d")) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        client.create_topics([NewTopic("t", 2, 3)])["t"].result(30)
        assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
        survivor = cluster.nodes[2]
        for node in cluster.nodes:
            cluster.kill(node.id)
        command = [OTTLA, "cluster", "recover", "--config", survivor.config]
        looked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert looked.returncode == 1
        assert "lost: what controllers 1, 2 decided after that without it" in looked.stdout
        assert looked.stderr == "nothing was changed: --yes does it\n"
        done = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        cluster.restart(3)
        alone = survivor.bootstrap_servers
        removed = cluster_verb(alone, "remove", "1", "2", "--fewer-copies")
        assert (removed.stderr, json.loads(removed.stdout)) == ("", [{"removed": 1}, {"removed": 2}])
        rows = json.loads(cluster_verb(alone, "status").stdout)
        assert [(row["node"], row["broker"], row["quorum"]) for row in rows] == [(3, "alive", "leader")]
        assert rows[0]["not in sync"] == 0
        assert round_trip(alone, "t", b"more") == b"more", "the first record is committed, the group goes on behind it"
