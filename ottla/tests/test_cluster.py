"""Settings and directories of a cluster of processes; its nodes are tested in compat_tests."""

from __future__ import annotations

import gc
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.cluster import Cluster, ClusterFailed, ClusterNode


def test_cluster_node_settings_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    node = ClusterNode(1, str(tmp_path / "node-1"), "127.0.0.1", 9092)
    settings = Path(node.config)
    settings.write_text("an older file")
    settings.chmod(0o644)
    node.start({"ssl.keystore.password": "geheim"})
    node.wait_end()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert settings.read_text() == "ssl.keystore.password=geheim\n"


@pytest.mark.parametrize("key", ["ottla.metrics.listener", "ottla.console.listener"])
def test_nodes_of_a_cluster_have_http_listeners_at_following_ports(tmp_path: Path, key: str) -> None:
    for given, expected in (
        ("127.0.0.1:9404", ["127.0.0.1:9404", "127.0.0.1:9405", "127.0.0.1:9406"]),
        ("[::1]:80", ["[::1]:80", "[::1]:81", "[::1]:82"]),
        ("127.0.0.1:0", ["127.0.0.1:0"] * 3),
        ("wrong", ["wrong"] * 3),
    ):
        cluster = Cluster(3, data_dir=tmp_path, settings={key: given})
        assert [cluster._settings_of(node)[key] for node in cluster.nodes] == expected
    assert key not in Cluster(1, data_dir=tmp_path)._settings_of(cluster.nodes[0])


@pytest.mark.parametrize("node_id", [0, -1, 4])
def test_node_that_does_not_exist_is_refused(tmp_path: Path, node_id: int) -> None:
    cluster = Cluster(3, data_dir=str(tmp_path))
    with pytest.raises(ValueError, match=rf"^node {node_id} \(1 to 3 expected\)$"):
        cluster.kill(node_id)


@pytest.mark.parametrize("arguments", [{"nodes": 0}, {"nodes": -1}, {"port": 65534}, {"port": -1}])
def test_cluster_without_nodes_or_ports_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"expected\)$"):
        Cluster(**arguments)


def test_temporary_directory_is_removed_with_a_cluster_that_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1)
    path = cluster._temporary
    assert path is not None
    assert Path(path).is_dir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        cluster.stop()
    assert Path(path).is_dir(), "a child of the program removes nothing"
    del cluster
    gc.collect()
    assert not Path(path).exists()
    before = set(Path(tempfile.gettempdir()).glob("ottla-*"))
    with pytest.raises(OSError, match="assign"):
        Cluster(1, host="198.51.100.7")
    assert set(Path(tempfile.gettempdir()).glob("ottla-*")) <= before


def test_running_cluster_does_not_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1, data_dir=tmp_path)
    monkeypatch.setattr(ClusterNode, "pid", 1)
    with pytest.raises(ClusterFailed, match="runs already"):
        cluster.start()
