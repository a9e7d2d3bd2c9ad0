"""Clients of other languages, each fetched by its own package manager; skipped where its toolchain is missing.

kafkajs and @platformatic/kafka (Node), franz-go, sarama and segmentio/kafka-go (Go), aiokafka (asyncio).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from compat_tests.cluster import OttlaProcess
from compat_tests.jars import CACHE

SOURCES = Path(__file__).parent / "clients"
COUNT = 40
GO = ("franz-go", "sarama", "kafka-go")
NODE = ("kafkajs", "platformatic")

pytestmark = pytest.mark.xdist_group("other-clients")


def fetched(name: str, *commands: list[str]) -> Path:
    """A copy of a client's sources in the cache, with what it needs fetched and built."""
    where = CACHE / "clients" / name
    shutil.copytree(SOURCES / name, where, dirs_exist_ok=True)
    for command in commands:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return where


@cache
def node_clients() -> Path:
    """The folder of the Node clients."""
    return fetched("node", ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"])


@cache
def go_clients() -> Path:
    """The folder of the Go clients, built."""
    return fetched("go", ["go", "build", "-o", "compat", "."])


def expected(codecs: list[str]) -> list[tuple[str, str, str]]:
    """What every client writes: some keys and values are null (an empty text stands for null here)."""
    return sorted(
        ("" if i % 7 == 0 else f"key-{i}", "" if i % 11 == 5 else f"{codec}-{i}", str(i))
        for codec in codecs
        for i in range(COUNT)
    )


def check(outcome: dict[str, Any], least_codecs: int) -> None:
    assert len(outcome["codecs"]) >= least_codecs
    got = sorted((k or "", v or "", n) for k, v, n in outcome["got"])
    assert got == expected(outcome["codecs"])
    assert outcome["end"] == COUNT * len(outcome["codecs"])
    assert outcome["state"] in ("Stable", "Empty")


def run(command: list[str], where: Path) -> dict[str, Any]:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    outcome: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    return outcome


@pytest.mark.skipif(shutil.which("npm") is None, reason="no Node.js on this machine")
@pytest.mark.parametrize("client", NODE)
def test_node_clients(node: OttlaProcess, topic: str, group: str, client: str) -> None:
    where = node_clients()
    outcome = run(["node", "clients.mjs", client, node.bootstrap, f"{client}-{topic}", f"{client}-{group}"], where)
    check(outcome, 2 if client == "kafkajs" else 4)


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go on this machine")
@pytest.mark.parametrize("client", GO)
def test_go_clients(node: OttlaProcess, topic: str, group: str, client: str) -> None:
    where = go_clients()
    check(run([str(where / "compat"), client, node.bootstrap, f"{client}-{topic}", f"{client}-{group}"], where), 5)


async def talk(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        for key, value, number in expected([codec]):
            await producer.send(
                topic,
                value.encode() or None,
                key=key.encode() or None,
                headers=[("n", number.encode())],
            )
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    got: list[tuple[str | None, str | None, str]] = []
    while len(got) < COUNT * len(codecs):
        for messages in (await consumer.getmany(timeout_ms=5000)).values():
            got += (
                (m.key and m.key.decode(), m.value and m.value.decode(), m.headers[0][1].decode()) for m in messages
            )
    await consumer.commit()
    ends = await consumer.end_offsets(list(consumer.assignment()))
    await consumer.stop()
    return {"codecs": codecs, "got": got, "end": sum(ends.values()), "state": "Empty"}


def test_aiokafka(node: OttlaProcess, topic: str, group: str) -> None:
    check(asyncio.run(asyncio.wait_for(talk(node.bootstrap, topic, group), 90)), 5)
