"""Nodes with the identity of another cluster or node, and addresses without a broker: one clear line each."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from compat_tests.cluster.test_mixed_quorum import property_of
from compat_tests.cluster.test_three_nodes import make_topic
from compat_tests.support.processes import OTTLA, free_ports
from compat_tests.support.round_trip import round_trip

FOREIGN = "5L6g3nShT-eMCtK--X86sw"
LOGGED_WITHIN_S = 180.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3) as out:
        make_topic(out.bootstrap_servers, "t")
        yield out


def controllers(cluster: ottla.Cluster) -> str:
    return ",".join(f"127.0.0.1:{node.controller_port}" for node in cluster.nodes)


def settings(cluster: ottla.Cluster, folder: Path, roles: str, node_id: int) -> Path:
    """Write the file of a node that names the controllers of this cluster."""
    client, controller = free_ports(2)
    also = f",CONTROLLER://127.0.0.1:{controller}" if "controller" in roles else ""
    file = folder / "newcomer.properties"
    file.write_text(
        f"process.roles={roles}\nnode.id={node_id}\nlog.dirs={folder / 'newcomer'}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:{client}{also}\n"
        f"controller.quorum.bootstrap.servers={controllers(cluster)}\n"
    )
    return file


def read_output(folder: Path, *command: str, wanted: str) -> list[str]:
    """Return the output of a node up to an expected line; then stop the node unless it has ended."""
    path = folder / "said.txt"
    with path.open("wb") as out, subprocess.Popen([OTTLA, *command], stdout=out, stderr=out, cwd=folder) as node:
        deadline = time.monotonic() + LOGGED_WITHIN_S
        while wanted not in path.read_text() and node.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # a repeated message would occur twice by then
        node.terminate()
    return path.read_text().splitlines()


def status(cluster: ottla.Cluster) -> list[dict[str, Any]]:
    """Return the nodes as the command lists them."""
    command = [OTTLA, "cluster", "status", "-o", "json", "-b", cluster.bootstrap_servers]
    out: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return out


def is_unharmed(cluster: ottla.Cluster) -> None:
    """Verify that the same three nodes are registered, vote and accept records."""
    assert round_trip(cluster.bootstrap_servers, "t") == b"hello"
    known = [(row["node"], row["broker"]) for row in status(cluster) if row["quorum"] != "observer"]
    assert known == [(i, "alive") for i in (1, 2, 3)]


@pytest.mark.parametrize("roles", ["broker", "broker,controller"])
@pytest.mark.parametrize("label", ["another cluster", "a broker's id", "the leader's id"])
def test_node_with_foreign_cluster_or_duplicate_id_logs_one_line(
    cluster: ottla.Cluster, tmp_path: Path, roles: str, label: str
) -> None:
    cluster_id = FOREIGN if label == "another cluster" else property_of(Path(cluster.node(1).data_dir), "cluster.id")
    leader = next(row["node"] for row in status(cluster) if row["quorum"] == "leader")
    node_id = {"another cluster": 4, "a broker's id": leader % 3 + 1, "the leader's id": leader}[label]
    wanted = {
        "another cluster": f"belongs to another cluster; this node has cluster id {FOREIGN}",
        "a broker's id": f"Unable to register broker {node_id}, retrying: "
        "the controller returned DUPLICATE_BROKER_REGISTRATION",
        "the leader's id": f"rejects fetches of node {node_id}",
    }[label]
    file = settings(cluster, tmp_path, roles, node_id)
    more = ["--no-initial-controllers"] if "controller" in roles else []
    subprocess.run([OTTLA, "format", "--config", file, "--cluster-id", cluster_id, *more], check=True)
    lines = read_output(tmp_path, "serve", "--config", str(file), wanted=wanted)
    assert [wanted in line for line in lines].count(True) == 1, lines
    assert not [line for line in lines if "Traceback" in line]
    is_unharmed(cluster)


@contextlib.contextmanager
def fake_server(answer: bytes) -> Iterator[int]:
    """Server that answers each connection with fixed bytes and closes it; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = server.accept()
                    line.recv(1000)
                    line.sendall(answer)
                    line.close()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10, b"\0\0\1\0\0\0\0\1", b""])
def test_serve_join_of_address_without_broker_names_the_address(tmp_path: Path, answer: bytes) -> None:
    with fake_server(answer) as port:
        wanted = f"ottla serve: 127.0.0.1:{port}: "
        command = ("serve", "--node-id", "4", "--listen", "127.0.0.1:0", "--data-dir", "d", "--join")
        (line,) = read_output(tmp_path, *command, f"127.0.0.1:{port}", wanted=wanted)
    assert line.startswith(wanted)
    assert not (tmp_path / "d" / "meta.properties").exists(), "nothing was changed"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--node-id", "2"), "node id 2 belongs to the node at"),
        (("--node-id", "4", "--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9"), "which is no address"),
    ],
)
def test_serve_join_with_used_id_or_unreachable_address_fails_to_start(
    cluster: ottla.Cluster, tmp_path: Path, options: tuple[str, ...], wanted: str
) -> None:
    joins = ("--listen", "127.0.0.1:0", "--data-dir", "d", "--join", cluster.bootstrap_servers)
    (line,) = read_output(tmp_path, "serve", *options, *joins, wanted=wanted)
    assert wanted in line
    is_unharmed(cluster)


def test_format_with_unsupported_release_version_lists_supported_versions(tmp_path: Path) -> None:
    file = tmp_path / "old.properties"
    file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path / 'd'}\n")
    command = ("format", "--config", str(file), "--standalone", "--cluster-id", FOREIGN, "--release-version", "3.3")
    (line,) = read_output(tmp_path, *command, wanted="no release '3.3'")
    assert "4.3-IV0" in line
