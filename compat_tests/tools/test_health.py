"""Health of a running node: its pages, ``ottla health``, the lines that container tests wait for, and systemd."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from compat_tests.cluster.test_three_nodes import formatted, wait_for
from compat_tests.support.processes import OTTLA, OttlaProcess, free_port


def get(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def health(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [OTTLA, "health", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_running_node_is_ready_and_names_its_state(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(data_dir.parent / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(data_dir.parent / "notify"))
        with OttlaProcess(data_dir, ottla_metrics_listener=f"127.0.0.1:{port}") as node:
            assert get(port, "/livez") == (200, {"status": "live"})
            status, document = get(port, "/readyz")
            assert (status, document["broker_state"], document["reasons"]) == (200, "RUNNING", [])
            assert get(port, "/v1/status/ready")[0] == 200
            by_http = health(KAFKA_OTTLA_METRICS_LISTENER=f"127.0.0.1:{port}")
            by_kafka = health(KAFKA_LISTENERS=f"PLAINTEXT://:{node.port},CONTROLLER://:1")
            assert (by_http.returncode, by_http.stdout) == (0, f"ready: 127.0.0.1:{port}\n")
            assert (by_kafka.returncode, by_kafka.stdout) == (0, f"ready: PLAINTEXT://:{node.port}\n")
            assert manager.recv(1000).startswith(b"READY=1\nSTATUS=")
        assert manager.recv(1000) == b"STOPPING=1"
        lines = node.log.read_text()
        first = lines.index("The broker has been unfenced. Transitioning from RECOVERY to RUNNING.")
        assert first < lines.index("[KafkaServer id=1] started")
        assert "Kafka Server started" in lines
    stopped = health("--http", f"127.0.0.1:{port}")
    assert (stopped.returncode, stopped.stderr) == (
        1,
        f"ottla health: no response: 127.0.0.1:{port}: Connection refused\n",
    )


def test_node_without_quorum_is_live_and_not_ready(tmp_path: Path) -> None:
    """Quorum of two without a leader: controller 2 does not exist."""
    controller, port = free_port(), free_port()
    text = (
        f"process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller},2@127.0.0.1:{free_port()}\n"
        f"ottla.metrics.listener=127.0.0.1:{port}\n"
    )
    with formatted(tmp_path, 1, controller, text):
        wait_for(lambda: get(port, "/livez")[0] == 200)
        status, document = get(port, "/readyz")
        assert (status, document["status"], document["roles"]) == (503, "not_ready", ["controller"])
        assert document["reasons"] == [{"reason": "no_controller", "message": "metadata quorum has no known leader"}]
        found = health("--http", f"127.0.0.1:{port}")
        assert (found.returncode, found.stderr) == (
            1,
            f"ottla health: not ready: 127.0.0.1:{port}: metadata quorum has no known leader\n",
        )
        assert health("--http", f"127.0.0.1:{port}", "--live").returncode == 0


def test_hostile_http_clients_do_not_stop_health_checks(data_dir: Path) -> None:
    """Slow clients: 1,000 connections, an endless head, slow readers."""
    port = free_port()
    with OttlaProcess(data_dir, ottla_metrics_listener=f"127.0.0.1:{port}"):
        streams = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(1000)]
        for number, stream in enumerate(streams[-40:]):
            try:
                stream.sendall(
                    (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000, b"GET /metrics HTTP/1.0\r\n")[number % 2]
                )
            except OSError:
                continue
        begun = time.monotonic()
        while get_or_none(port) != 200:
            assert time.monotonic() - begun < 300
        for stream in streams:
            stream.close()
        assert get(port, "/readyz")[0] == 200
        for host in ("evil.example", "127.0.0.1.evil.example"):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": host})
            with pytest.raises(urllib.error.HTTPError, match="421"):
                urllib.request.urlopen(request, timeout=300)


def get_or_none(port: int) -> int | None:
    try:
        return get(port, "/readyz")[0]
    except OSError:
        return None
