"""``ottla produce`` and ``ottla consume``: sending, bytes, JSON, partitions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import ottla
from ottla.cli.commands import produce
from ottla.cli.connection_settings import CONFIG_VARIABLE
from ottla.cli.records import record_input
from ottla.cli.records.idempotent_producer import TopicProducer
from ottla.cli.tests.command_runs import run_command
from ottla.client.channel import Channel, Disconnected
from ottla.client.murmur2 import murmur2, partition_for_key
from ottla.tools.json_records import InvalidRecord, record_from_json, record_to_json
from ottla.wire.api_keys import ApiKey
from ottla.wire.record_batch.records import Record

pytestmark = pytest.mark.xdist_group(__name__)
ALL_BYTES = bytes(x for x in range(256) if x != ord("\n"))


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker(settings={"num.partitions": "4"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


def send(node: str, topic: str, data: bytes, *options: str) -> None:
    done = run_command("produce", topic, "-b", node, *options, stdin=data)
    assert (done.status, done.err) == (0, ""), done


def read(node: str, topic: str, *options: str) -> bytes:
    done = run_command("consume", topic, "-b", node, "--exit", *options)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def read_json(node: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read(node, topic, "-o", "json").splitlines()]


def test_produce_sends_lines_when_input_pauses(node: str, topic: str) -> None:
    """The writer waits until each line can be consumed before it writes the next: a buffering producer never ends."""
    read_end, write_end = os.pipe()
    seen: list[bytes] = []

    def write() -> None:
        for number in range(3):
            os.write(write_end, b"line%d\n" % number)
            deadline = time.monotonic() + 120
            while len(seen) <= number and time.monotonic() < deadline:
                seen[:] = sorted(run_in_process("consume", topic, "-b", node, "--exit").splitlines())
        os.close(write_end)

    writer = threading.Thread(target=write)
    with os.fdopen(read_end, "rb") as given, mock.patch.object(sys, "stdin", given):
        writer.start()
        assert produce.run([topic, "-b", node]) == 0
    writer.join()
    assert seen == [b"line0", b"line1", b"line2"]


def run_in_process(*arguments: str) -> bytes:
    """Return the output of a command in its own process."""
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, check=False).stdout


def test_produce_and_consume_keep_all_bytes(node: str, topic: str) -> None:
    lines = [ALL_BYTES, b"\xff\xfe", b"", b"with\rreturn\r", b"last without end"]
    send(node, topic, b"\n".join(lines), "--partition", "0")
    assert read(node, topic) == b"".join(line + b"\n" for line in lines)


def test_produce_key_separator_and_null_marker_split_lines(node: str, topic: str) -> None:
    send(node, topic, b"k:v:w\nno separator\nk:-\n-:v\n", "--key-separator", ":", "--null-marker", "-")
    rows = {(row["key"], row["value"]) for row in read_json(node, topic)}
    assert rows == {("k", "v:w"), (None, "no separator"), ("k", None), (None, "v")}


def test_json_records_survive_round_trip(node: str, topic: str) -> None:
    rows: list[dict[str, Any]] = [
        {"key": "k", "value": None, "headers": {"a": "1", "b": ["2", None], "c": None}, "partition": 2},
        {"key_base64": "//4=", "value_base64": "gA==", "headers_base64": {"h": "/w=="}, "partition": 2},
        {"value": {"n": 1, "t": "grün"}, "timestamp_ms": 1234, "partition": 2},
    ]
    send(node, topic, b"\n".join(json.dumps(row).encode() for row in rows), "-i", "json")
    seen = read_json(node, topic)
    send(node, f"{topic}-copy", read(node, topic, "-o", "json"), "-i", "json")
    assert [{**row, "topic": topic} for row in read_json(node, f"{topic}-copy")] == seen
    common = {"topic": topic, "partition": 2}
    assert seen[0] == {**common, **rows[0], "offset": 0, "timestamp_ms": seen[0]["timestamp_ms"]}
    assert seen[1] == {**common, **rows[1], "headers": {}, "offset": 1, "timestamp_ms": seen[1]["timestamp_ms"]}
    value = '{"n":1,"t":"grün"}'
    assert seen[2] == {**common, "key": None, "value": value, "headers": {}, "offset": 2, "timestamp_ms": 1234}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"x", "JSON object expected"),
        (b"[1]", "JSON object expected"),
        (b"\xff", "JSON object expected"),
        (b"[" * 100_000, "JSON object expected"),
        (b'{"valu": 1}', "unknown field: valu"),
        (b'{"key": "a", "key_base64": "YQ=="}', "exclude each other"),
        (b'{"value_base64": "?"}', "value_base64: base64 expected"),
        (b'{"value_base64": 1}', "value_base64: base64 expected"),
        (b'{"headers": [1]}', "headers: object expected"),
        (b'{"partition": -1}', "partition: whole number expected"),
        (b'{"partition": true}', "partition: whole number expected"),
        (b'{"timestamp_ms": 1e30}', "timestamp_ms: whole number expected"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"headers": {"\\ud800": "x"}}', "surrogate"),
    ],
)
def test_record_from_json_malformed_line_raises_invalid_record(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidRecord, match=problem):
        record_from_json(line)


def test_produce_malformed_line_is_reported_after_sending_earlier_lines(node: str, topic: str) -> None:
    done = run_command("produce", topic, "-b", node, "-i", "json", stdin=b'{"value": "a"}\n{}\nx\n{"value": "b"}\n')
    assert (done.status, done.err) == (1, "ottla: line 3: JSON object expected (records sent before: 2)\n")
    assert [row["value"] for row in read_json(node, topic)] == ["a", None]


def test_record_to_json_keeps_all_values_of_repeated_headers() -> None:
    headers = (("a", b"1"), ("b", b"\xff"), ("a", b"2"))
    row = record_to_json("t", 0, Record(0, 1, b"k", b"v", headers))
    assert (row["headers"], row["headers_base64"]) == ({"a": ["1", "2"]}, {"b": "/w=="})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_kafkas(key: bytes, value: int) -> None:
    """Source: ``UtilsTest.testMurmur2`` (apache/kafka 4.3.1)."""
    assert murmur2(key) == value % 2**32


def test_produce_partitions_keys_as_kafkas_producer(node: str, topic: str) -> None:
    keys = [f"user-{number}" for number in range(20)]
    send(node, topic, "".join(f"{key}:x\n" for key in keys).encode(), "--key-separator", ":")
    seen = {row["key"]: row["partition"] for row in read_json(node, topic)}
    assert seen == {key: partition_for_key(key.encode(), 4) for key in keys}
    assert len(set(seen.values())) == 4


@pytest.mark.parametrize(("options", "times"), [((), 1), (("--no-idempotence",), 2)])
def test_produce_lost_response_appends_batch_once(
    node: str, topic: str, options: tuple[str, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, lost = Channel.call, list[ApiKey]()

    async def lose_first_response(self: Channel, request: Any, version: int | None = None) -> Any:
        answer = await call(self, request, version)
        key = ApiKey(request.SPEC.key)
        if key is ApiKey.PRODUCE and not lost:
            lost.append(key)
            self.close()
            raise Disconnected("lost")
        return answer

    monkeypatch.setattr(Channel, "call", lose_first_response)
    send(node, topic, b"a\n", *options)
    monkeypatch.undo()
    assert lost
    assert read(node, topic) == b"a\n" * times


def test_produce_too_large_record_error_contains_topic_and_limit(node: str, topic: str) -> None:
    done = run_command("produce", topic, "-b", node, "--partition", "1", stdin=b"small\n" + b"x" * 2_000_000 + b"\n")
    assert done.status == 1
    assert f"record too large: topic {topic}, partition 1 (batch of " in done.err
    assert "max.message.bytes is 1048588)" in done.err
    assert "None" not in done.err


def test_produce_splits_large_batches_of_small_records(node: str, topic: str) -> None:
    send(node, topic, b"".join(b"%06d" % number + b"x" * 10_000 + b"\n" for number in range(300)), "--partition", "0")
    assert len(read(node, topic).splitlines()) == 300


def test_produce_divides_batches_that_are_too_large_for_the_topic(node: str, topic: str) -> None:
    done = run_command("topic", "create", topic, "-b", node, "--config", "max.message.bytes=5000")
    assert done.status == 0, done
    lines = [b"%06d" % number + b"x" * 1000 for number in range(20)]
    send(node, topic, b"\n".join(lines))
    assert read(node, topic).splitlines() == lines
    done = run_command("produce", topic, "-b", node, stdin=b"\n".join([*lines, b"y" * 6000, b"z"]))
    assert "max.message.bytes is 5000) (records sent before: 20)" in done.err
    assert read(node, topic).splitlines() == lines * 2


def test_consume_max_messages_stops_exactly(node: str, topic: str) -> None:
    send(node, topic, b"a\nb\nc\n", "--partition", "0")
    assert read(node, topic, "-n", "0") == b""
    assert read(node, topic, "-n", "2") == b"a\nb\n"
    assert read(node, topic, "-n", "9") == b"a\nb\nc\n"


def test_produce_sequence_numbers_wrap_around(node: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = TopicProducer.__init__

    def near_the_end(self: TopicProducer, *arguments: Any, **options: Any) -> None:
        producer(self, *arguments, **options)
        self._sequences[0] = 2**31 - 1

    monkeypatch.setattr(TopicProducer, "__init__", near_the_end)
    monkeypatch.setattr(record_input, "BATCH_RECORDS", 1)
    send(node, topic, b"a\nb\n", "--partition", "0")
    assert read(node, topic) == b"a\nb\n"


def test_command_config_sets_bootstrap_servers(
    node: str, topic: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={node}\n")
    done = run_command("produce", topic, "--command-config", str(config), stdin=b"a\n")
    assert done.status == 0, done
    monkeypatch.setenv(CONFIG_VARIABLE, str(config))
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "")
    assert run_command("consume", topic, "--exit").out == b"a\n"
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:1")
    assert run_command("consume", topic, "--exit").status == 1
    assert run_command("consume", topic, "--exit", "--command-config", str(config)).out == b"a\n"
    config.write_text("bootstrap.servers=foo\n")
    done = run_command("topic", "list", "--command-config", str(config))
    assert (done.status, done.err) == (1, f"ottla: {config}: HOST:PORT expected: foo\n")


def test_plaintext_connection_to_tls_listener_suggests_the_cause() -> None:
    with ottla.Broker(tls=True) as broker:
        done = run_command("topic", "list", "-b", broker.bootstrap_servers)
    assert done.status == 1
    assert done.err.startswith(f"ottla: connection lost: {broker.bootstrap_servers}: ")
    assert done.err.endswith("(the listener may require TLS or a login: --command-config FILE)\n")
