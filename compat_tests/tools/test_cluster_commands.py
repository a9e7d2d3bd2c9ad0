"""`ottla cluster` and `ottla.Cluster`: nodes as processes, from the first start to a clean stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
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
    """Start the command; yield it with its output up to readiness."""
    process = subprocess.Popen([OTTLA, "cluster", "start", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        collected = []
        for line in process.stdout:
            collected.append(line)
            if "Kafka Server started" in line:
                break
        yield process, collected
    finally:
        process.terminate()
        process.wait(300)
        assert process.stdout is not None
        process.stdout.close()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_cluster_start_prints_nodes_and_stops_them_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    with started("--nodes", "1", "--data-dir", str(tmp_path / "d"), "--port", str(port)) as (process, lines):
        assert lines[0].startswith(f"node 1: 127.0.0.1:{port}, data in {tmp_path / 'd'}/node-1, process ")
        assert round_trip(f"127.0.0.1:{port}", "t") == b"hello"
        status = subprocess.run(
            [OTTLA, "cluster", "status", "-b", f"127.0.0.1:{port}", "-o", "json"], capture_output=True, check=True
        )
        (row,) = json.loads(status.stdout)
        assert (row["node"], row["broker"], row["quorum"]) == (1, "alive", "leader")
        node = int(lines[0].rsplit(" ", 1)[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        assert not is_alive(node)


def test_cluster_start_with_all_nodes_killed_exits_with_1(tmp_path: Path) -> None:
    with started("--nodes", "1", "--data-dir", str(tmp_path / "d"), "--port", str(free_port())) as (process, lines):
        os.kill(int(lines[0].rsplit(" ", 1)[1]), signal.SIGKILL)
        assert process.wait(300) == 1


def test_cluster_start_with_used_port_names_node_and_its_error(tmp_path: Path) -> None:
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
            timeout=300,
            check=False,
        )
    assert done.returncode == 1
    start = "ottla cluster: node 1 ended with status 2: ottla serve: Socket server failed to bind"
    assert done.stderr.startswith(start)
    assert done.stderr.count("\n") == 1


def test_cluster_restart_of_killed_node_keeps_records_and_groups() -> None:
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
from confluent_kafka.admin import AdminClient

def test_three(kafka_cluster):
    for node in kafka_cluster.nodes:
        client = AdminClient({"bootstrap.servers": node.bootstrap_servers})
        assert sorted(client.list_topics(timeout=120).brokers) == [1, 2, 3]
    kafka_cluster.kill(1)
    kafka_cluster.restart(1)
"""


def test_cluster_fixture_starts_three_nodes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_cluster_start_with_more_nodes_than_before_adds_brokers(tmp_path: Path) -> None:
    with ottla.Cluster(1, data_dir=str(tmp_path / "d")) as cluster:
        assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
    with ottla.Cluster(2, data_dir=str(tmp_path / "d")) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert sorted(client.list_topics(timeout=120).brokers) == [1, 2]
        client.create_topics([NewTopic("u", 1, 2)])["u"].result(120)
        assert round_trip(cluster.bootstrap_servers, "u") == b"hello"


def cluster_verb(bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``ottla cluster`` with JSON output."""
    command = [OTTLA, "cluster", *words, "-b", bootstrap, "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_cluster_remove_moves_replicas_and_unregisters_node() -> None:
    with ottla.Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        last = cluster.nodes[2]
        client = AdminClient({"bootstrap.servers": bootstrap})
        client.create_topics([NewTopic("t", 4, 2)])["t"].result(120)
        assert round_trip(bootstrap, "t") == b"hello"
        refused = cluster_verb(bootstrap, "remove", "7")
        assert (refused.returncode, refused.stderr) == (1, "ottla: no node 7 in this cluster\n")
        plan = json.loads(cluster_verb(bootstrap, "remove", "3", "--fewer-copies", "--dry-run").stdout)
        assert [row["step"] for row in plan[-3:]] == ["stop", "remove voter", "unregister"]
        # Through the node that is removed.
        command = [OTTLA, "cluster", "remove", "3", "-b", last.bootstrap_servers, "-o", "json", "--fewer-copies"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as removing:
            assert removing.stderr is not None
            assert removing.stderr.readline() == "node 3 has no replicas left: stop it now\n"
            cluster.kill(3)
            out, err = removing.communicate(timeout=180)
        assert (removing.returncode, err) == (0, "")
        assert json.loads(out) == [{"removed": 3}]
        rows = json.loads(cluster_verb(bootstrap, "status").stdout)
        assert [(row["node"], row["broker"]) for row in rows if row["broker"] != "-"] == [(1, "alive"), (2, "alive")]
        assert all(row["quorum"] == "observer" for row in rows if row["node"] == 3), "remembered for a while"
        assert all(row["not in sync"] == 0 for row in rows)
        assert sum(row["replicas"] for row in rows) >= 8
        assert round_trip(bootstrap, "t", b"more") == b"more"


def test_cluster_recover_of_last_controller_serves_alone_and_removes_others(tmp_path: Path) -> None:
    with ottla.Cluster(3, data_dir=str(tmp_path / "d")) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        client.create_topics([NewTopic("t", 2, 3)])["t"].result(120)
        assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
        survivor = cluster.nodes[2]
        for node in cluster.nodes:
            cluster.kill(node.id)
        command = [OTTLA, "cluster", "recover", "--config", survivor.config]
        looked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert looked.returncode == 1
        assert "lost: later metadata that only controllers 1, 2 have" in looked.stdout
        assert looked.stderr == "nothing was changed: add --yes to apply\n"
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
