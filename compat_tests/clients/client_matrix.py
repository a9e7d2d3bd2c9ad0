"""Matrix of stock clients and their features against a cluster: ``python -m compat_tests --bootstrap HOST:PORT``.

Each client is a small program under ``clients/`` with two modes: ``all`` writes with every codec it has, reads it back
in a group and prints what it saw; ``member`` reads as a member of a group until it is killed. They are fetched by their
own package managers, pinned, and left out with a reason where their toolchain is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.support.jars import CACHE, SparkMissing, classpath, jars

SOURCES = Path(__file__).parent
COUNT = 40
BASE_MS = time.time_ns() // 10**9 * 1000 - 60_000
"""Timestamp of the first record, recent enough to survive retention."""
BIG = 1_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MATRIX_CELLS = (*CODECS, "keys, nulls, headers", "timestamps", "1 MB", "admin", "two members")
YES, NO, NOT_OFFERED = "yes", "NO", "-"
MEMBERS_TIMEOUT_S = 300.0


class ToolchainMissing(Exception):
    """Error: the toolchain of a client is not installed."""


class MatrixClient(NamedTuple):
    """Client library of the matrix: its version, and the command of its program."""

    name: str
    version: str
    command: Callable[[], list[str]]
    has_groups: bool = True


def _fetched(name: str, *commands: list[str]) -> Path:
    """Copy the sources of a client to the cache and build them; once for each state of the sources."""
    where = CACHE / "clients" / name
    sources = sorted(p for p in (SOURCES / name).rglob("*") if p.is_file())
    state = hashlib.sha256(b"".join(p.read_bytes() for p in sources) + repr(commands).encode()).hexdigest()
    stamp = where / ".built"
    if stamp.exists() and stamp.read_text() == state:
        return where
    shutil.copytree(SOURCES / name, where, dirs_exist_ok=True)
    for command in commands:
        if shutil.which(command[0]) is None:
            raise ToolchainMissing(f"no {command[0]} on this machine")
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    stamp.write_text(state)
    return where


_lock = threading.Lock()


@cache
def _node() -> Path:
    return _fetched("node", ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"])


@cache
def _go() -> Path:
    return _fetched("go", ["go", "build", "-o", "compat", "."])


@cache
def _rust() -> Path:
    return _fetched("rust", ["cargo", "build", "--quiet"])


@cache
def _kcat() -> Path:
    where = CACHE / "clients" / "kcat"
    where.mkdir(parents=True, exist_ok=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ToolchainMissing("no Debian packages on this machine")
    if not (where / "kcat").exists():
        packages = ["kcat=1.7.1-2", "librdkafka1", "libyajl2"]
        done = subprocess.run(
            ["apt-get", "download", *packages], cwd=where, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ToolchainMissing(f"kcat's packages cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
        for package in where.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, where / "root"], check=True)
        script = where / "kcat"
        root = where / "root" / "usr"
        script.write_text(
            f'#!/bin/sh\nexport LD_LIBRARY_PATH="{root}/lib/x86_64-linux-gnu"\nexec "{root}/bin/kcat" "$@"\n'
        )
        script.chmod(0o755)
    return where


def _java() -> list[str]:
    if shutil.which("java") is None:
        raise ToolchainMissing("no java on this machine")
    try:
        jars("kafka")
    except SparkMissing as missing:
        raise ToolchainMissing(str(missing)) from None
    return ["java", "-cp", classpath(), str(SOURCES / "java" / "Compat.java")]


def _python(name: str) -> list[str]:
    return [sys.executable, str(SOURCES / "python" / "clients.py"), name]


CLIENTS = (
    MatrixClient("confluent-kafka", "2.16.1", lambda: _python("confluent")),
    MatrixClient("kafka-python", "3.0.12", lambda: _python("kafka-python")),
    MatrixClient("aiokafka", "0.14.0", lambda: _python("aiokafka")),
    MatrixClient("Java kafka-clients", "4.3.1", _java),
    MatrixClient("kafkajs", "2.2.4", lambda: ["node", str(_node() / "clients.mjs"), "kafkajs"]),
    MatrixClient("@platformatic/kafka", "1.35.0", lambda: ["node", str(_node() / "clients.mjs"), "platformatic"]),
    MatrixClient("franz-go", "1.22.2", lambda: [str(_go() / "compat"), "franz-go"]),
    MatrixClient("sarama", "1.61.1", lambda: [str(_go() / "compat"), "sarama"]),
    MatrixClient("segmentio/kafka-go", "0.4.51", lambda: [str(_go() / "compat"), "kafka-go"]),
    MatrixClient("rdkafka (Rust)", "0.39.0", lambda: [str(_rust() / "target/debug/compat"), "rdkafka"]),
    MatrixClient("rskafka", "0.6.0", lambda: [str(_rust() / "target/debug/compat"), "rskafka"], has_groups=False),
    MatrixClient(
        "kcat",
        "1.7.1",
        lambda: ["env", f"KCAT={_kcat() / 'kcat'}", sys.executable, str(SOURCES / "kcat" / "kcat.py")],
    ),
)


def client_command(client: MatrixClient) -> list[str]:
    """Return the command of a client's program, after fetching and building its parts.

    Raises:
        ToolchainMissing: The toolchain of the client is not installed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock, (CACHE / "clients.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # other test processes build here too
        return client.command()


# --------------------------------------------------------------------- evaluation of a run


def expected_records(codec: str) -> list[tuple[str, str, str, int]]:
    """Return the records that each client writes with a codec.

    Some keys and values are null; an empty text stands for null.
    """
    return [
        ("" if i % 7 == 0 else f"key-{i}", "" if i % 11 == 5 else f"{codec}-{i}", str(i), BASE_MS + i)
        for i in range(COUNT)
    ]


def evaluate_cells(outcome: dict[str, Any]) -> dict[str, str]:
    """Return the cells that a run of mode ``all`` fills."""
    got = [(k or "", v or "", n, at) for k, v, n, at in outcome["got"]]
    wanted = [row for codec in outcome["codecs"] for row in expected_records(codec)]
    values = {v for _, v, _, _ in got}
    cells = {}
    for codec in CODECS:
        there = values >= {v for _, v, _, _ in expected_records(codec) if v}
        cells[codec] = (YES if there else NO) if codec in outcome["codecs"] else NOT_OFFERED
    whole = sorted(row[:3] for row in got) == sorted(row[:3] for row in wanted) and outcome["end"] == len(wanted)
    cells["keys, nulls, headers"] = YES if whole and outcome.get("state", "Stable") in ("Stable", "Empty") else NO
    if all(row[3] is None for row in got):
        cells["timestamps"] = NOT_OFFERED
    else:
        cells["timestamps"] = YES if sorted(got) == sorted(wanted) else NO
    cells["1 MB"] = YES if outcome["big"] == BIG else NO
    cells["admin"] = NOT_OFFERED if "deleted" not in outcome else YES if outcome["deleted"] else NO
    return cells


class MemberProcessEnded(Exception):
    """Error: the program of a group member ended by itself."""


class MemberProcess:
    """Group member: a client's program that prints the records it reads."""

    def __init__(self, command: list[str], bootstrap: str, topic: str, group: str, mode: str = "member") -> None:
        self._process = subprocess.Popen(
            [*command, mode, bootstrap, topic, group], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.records_seen: dict[str, set[int]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, _, value = line.strip().partition(" ")
            self.records_seen.setdefault(value, set()).add(int(partition))

    def check(self) -> None:
        """Raise MemberProcessEnded if the program has ended."""
        if self._process.poll() is not None:
            raise MemberProcessEnded(f"{self._process.args!r} ended with {self._process.returncode}")

    def kill(self) -> None:
        """``kill -9``: the group coordinator notices it by the session timeout."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _try_two_members(command: list[str], bootstrap: str, name: str, mode: str) -> bool:
    """Try ``two_members`` once.

    Raises:
        MemberProcessEnded: The program of a member ended by itself.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"members-{name}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(120)
    producer = Producer({"bootstrap.servers": bootstrap})
    members = [MemberProcess(command, bootstrap, topic, topic, mode) for _ in range(2)]
    deadline = time.monotonic() + MEMBERS_TIMEOUT_S
    number = 0

    def until(done: Callable[[str], bool]) -> bool:
        nonlocal number
        while time.monotonic() < deadline:
            number += 1
            for member in members:
                member.check()
            for partition in (0, 1):
                producer.produce(topic, f"round {number}", partition=partition)
            producer.flush(120)
            time.sleep(0.3)
            if any(done(f"round {n}") for n in range(max(1, number - 8), number + 1)):
                return True
        return False

    try:
        first, second = members
        shared = until(
            lambda r: (
                len(first.records_seen.get(r, ())) == 1 == len(second.records_seen.get(r, ()))
                and first.records_seen[r] != second.records_seen[r]
            )
        )
        second.kill()
        members.pop()
        return shared and until(lambda r: first.records_seen.get(r) == {0, 1} and r not in second.records_seen)
    finally:
        for member in members:
            member.kill()


def two_members(command: list[str], bootstrap: str, name: str, mode: str = "member") -> bool:
    """Let two members share two partitions, kill one, and wait until the other reads both.

    ``mode`` is the kind of member.

    If the program of a member ends by itself, the test is repeated, at most twice: @platformatic/kafka ends, with Kafka
    as with Ottla, when one of its commits meets a rebalance (ILLEGAL_GENERATION).
    """
    for turn in range(3):
        try:
            return _try_two_members(command, bootstrap, f"{name}-{turn}", mode)
        except MemberProcessEnded as ended:
            print(ended, file=sys.stderr)
    return False


def client_row(client: MatrixClient, bootstrap: str, run: str) -> dict[str, str] | str:
    """Return the cells of a client, or the reason why it was left out. ``run`` makes unused names."""
    try:
        command = client_command(client)
    except ToolchainMissing as missing:
        return str(missing)
    name = "".join(c if c.isalnum() else "-" for c in client.name) + f"-{run}"
    done = subprocess.run(
        [*command, "all", bootstrap, name, name],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "COMPAT_BASE_MS": str(BASE_MS)},
    )
    if done.returncode != 0:
        print(f"{client.name}: {done.stdout[-500:]}{done.stderr[-3000:]}", file=sys.stderr)
        cells = dict.fromkeys(MATRIX_CELLS, NO)
    else:
        cells = evaluate_cells(json.loads(done.stdout.strip().split("\n")[-1]))
    if client.has_groups:
        cells["two members"] = YES if two_members(command, bootstrap, name) else NO
    else:
        cells["two members"] = NOT_OFFERED
    return cells


def measure_clients(
    bootstrap: str, clients: tuple[MatrixClient, ...] = CLIENTS, run: str = ""
) -> dict[str, dict[str, str] | str]:
    """Return the rows of all clients; three run at a time, since most of the time is waiting."""
    run = run or hex(time.time_ns())[-8:]
    with ThreadPoolExecutor(3) as pool:
        rows = pool.map(lambda client: client_row(client, bootstrap, run), clients)
        return {client.name: row for client, row in zip(clients, rows, strict=True)}


def format_table(rows: dict[str, dict[str, str] | str]) -> str:
    """Return the matrix in Markdown."""
    versions = {client.name: client.version for client in CLIENTS}
    lines = ["| client | version | " + " | ".join(MATRIX_CELLS) + " |", "|---" * (len(MATRIX_CELLS) + 2) + "|"]
    for name, cells in rows.items():
        shown = [f"left out: {cells}"] if isinstance(cells, str) else [cells[cell] for cell in MATRIX_CELLS]
        lines.append(f"| {name} | {versions[name]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)
