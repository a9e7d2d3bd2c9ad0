"""Data directories with symbolic links and foreign directories, and invalid paths."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from compat_tests.support.processes import OTTLA, OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, delete_topics
from ottla.wire.record_batch import records

FOREIGN = ("lost+found", "my-backup.2024-delete", "my-future", "old-stray", "backup-20240101")


def produce(peer: RawClient, topic: str) -> tuple[int, int]:
    """Return error code and offset."""
    row = peer.produce(topic, 0, records.build_batch([records.NewRecord(b"k", b"v", time.time_ns() // 10**6)]))
    return row.error_code, row.base_offset


def move_behind_link(path: Path, to: Path) -> None:
    """Move a directory and put a symbolic link to it in its place."""
    shutil.move(path, to)
    path.symlink_to(to)


def test_node_with_symbolic_links_in_log_dir_serves_deletes_and_restarts(tmp_path: Path) -> None:
    data, other = tmp_path / "link", tmp_path / "other"
    (tmp_path / "real").mkdir()
    data.symlink_to("real")
    settings = {"log_segment_delete_delay_ms": "100"}
    with OttlaProcess(data, **settings) as node:
        body = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 1, 1) for name in ("t", "u", "v")], 30_000
        )
        peer = RawClient(node.port)
        assert [x.error_code for x in peer.call(ApiKey.CREATE_TOPICS, 7, body).topics] == [0, 0, 0]
        assert [produce(peer, name) for name in ("t", "u", "v")] == [(0, 0)] * 3
    other.mkdir()
    move_behind_link(data / "t-0", other / "t-0")
    move_behind_link(data / "__cluster_metadata-0", other / "metadata")
    shutil.move(data / "v-0", other / "v-0")
    (data / "v-0").symlink_to("nowhere")
    for name in FOREIGN:
        (data / name).mkdir()
        (data / name / "f").write_text("precious")
    with OttlaProcess(data, node.port, **settings) as node:
        peer = RawClient(node.port)
        assert [produce(peer, name) for name in ("t", "u")] == [(0, 1)] * 2
        assert produce(peer, "v")[0] != 0, "its directory is a link to nothing"
        answer = peer.call(
            ApiKey.DELETE_TOPICS, 5, delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        )
        assert answer.responses[0].error_code == 0
        wait_until(lambda: not list(data.glob("t-0*")))
        assert not list((other / "t-0").glob("0*")), "Kafka removes the segments, and then the link"
    (data / "v-0").unlink()
    move_behind_link(other / "v-0", data / "v-0")
    with OttlaProcess(data, node.port) as node:
        assert [produce(RawClient(node.port), name) for name in ("u", "v")] == [(0, 2), (0, 1)]
    assert all((data / name / "f").read_text() == "precious" for name in FOREIGN)


@pytest.mark.parametrize("where", ["file", "file/below", "broken-link"])
def test_serve_with_data_dir_that_is_no_directory_prints_one_line(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "broken-link").symlink_to("nowhere")
    path = str(tmp_path / where)
    done = subprocess.run(
        [OTTLA, "serve", "--data-dir", path, "--listen", "127.0.0.1:0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert path in done.stderr
    assert "Errno" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_serve_with_quorum_state_as_fifo_prints_one_line(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data"):
        pass
    path = tmp_path / "data" / "__cluster_metadata-0" / "quorum-state"
    path.unlink()
    os.mkfifo(path)
    command = [OTTLA, "serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"ottla serve: not a regular file: {path}"]
