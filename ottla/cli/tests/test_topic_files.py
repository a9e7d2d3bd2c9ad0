"""``ottla topic export | import``: JSON lines with keys, headers, timestamps and partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker(settings={"num.partitions": 3, "auto.create.topics.enable": False}) as running:
        running.client.create_topic("from", 3)
        running.produce(
            "from", b"\xff\0", None, key="k", headers={"n": None, "h": b"\xfe"}, partition=2, timestamp_ms=5
        )
        running.produce("from", *(f"v{n}" for n in range(1200)), partition=0, timestamp_ms=6)
        yield running


def test_topic_export_and_import_survive_round_trip(broker: ottla.Broker, tmp_path: Path) -> None:
    path = tmp_path / "from.jsonl"
    done = run_command("topic", "export", "from", str(path), "-b", broker.bootstrap_servers, "-o", "json")
    assert (done.status, done.err) == (0, ""), done
    assert json.loads(done.out) == [{"topic": "from", "file": str(path), "records": 1202}]
    assert list(tmp_path.iterdir()) == [path]
    done = run_command("topic", "import", "to", str(path), "-b", broker.bootstrap_servers, "-o", "json")
    assert (done.status, done.err) == (0, ""), done
    assert json.loads(done.out) == [{"topic": "to", "sent": 1202}]
    assert [x._replace(topic="from") for x in broker.records("to")] == broker.records("from")


def test_topic_export_and_import_default_to_standard_output_and_input(broker: ottla.Broker) -> None:
    out = run_command("topic", "export", "from", "-b", broker.bootstrap_servers).out
    assert len(out.splitlines()) == 1202
    lines = b"".join(out.splitlines(keepends=True)[-2:])
    words = ("topic", "import", "piped", "-b", broker.bootstrap_servers)
    done = run_command(*words, stdin=lines)
    assert (done.status, done.err) == (1, "ottla: topic piped does not exist: --partitions N creates it\n")
    assert run_command(*words, "--partitions", "4", stdin=lines).status == 0
    assert [x.partition for x in broker.records("piped")] == [2, 2]


def test_topic_import_missing_partition_or_malformed_line_fails(broker: ottla.Broker, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"value": "x"}\n{"value": "y", "partition": 3}\n')
    done = run_command("topic", "import", "from", str(path), "-b", broker.bootstrap_servers)
    assert done.status == 1
    assert "line 2: partition 3 of topic from does not exist" in done.err
    path.write_text('{"value": "x"}\nno\n')
    done = run_command("topic", "import", "never", str(path), "-b", broker.bootstrap_servers)
    assert (done.status, done.err) == (1, f"ottla: {path}: line 2: JSON object expected\n")
    assert "never" not in run_command("topic", "list", "-b", broker.bootstrap_servers).out.decode()


def test_topic_export_and_import_of_empty_topic(broker: ottla.Broker, tmp_path: Path) -> None:
    broker.client.create_topic("empty", 1)
    path = tmp_path / "f"
    assert run_command("topic", "export", "empty", str(path), "-b", broker.bootstrap_servers).status == 0
    assert path.read_bytes() == b""
    assert run_command("topic", "import", "empty2", str(path), "-b", broker.bootstrap_servers).status == 0
    assert broker.records("empty2") == []


@pytest.mark.parametrize(
    "words", ["topic export from /nope/f", "topic import from /nope/f", "topic import new /nope/f"]
)
def test_topic_file_that_cannot_be_opened_error_contains_path(broker: ottla.Broker, words: str) -> None:
    done = run_command(*words.split(), "-b", broker.bootstrap_servers)
    assert done.status == 1
    assert "/nope/f" in done.err
    assert "No such file or directory" in done.err
