"""Options of ``ottla consume``: start and end, filters, formats."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator

import pytest

import ottla
from ottla.cli.errors import CommandFailed
from ottla.cli.records.record_filter import parse_record_filter
from ottla.cli.records.record_format import format_record, parse_record_format
from ottla.cli.tests.command_runs import run_command
from ottla.cli.times import parse_time
from ottla.wire.record_batch.records import Record

pytestmark = pytest.mark.xdist_group(__name__)
HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    """Broker with a topic of two partitions: ten records, one hour apart, in alternating partitions."""
    with ottla.Broker(settings={"num.partitions": 2}) as running:
        for number in range(10):
            value = f'{{"n": {number}, "odd": {str(bool(number % 2)).lower()}, "in": {{"list": ["a", {number}]}}}}'
            running.produce(
                "hours",
                value,
                key=f"k{number}",
                headers={"trace": f"t{number % 3}", "n": None},
                partition=number % 2,
                timestamp_ms=FIRST_MS + number * HOUR_MS,
            )
        yield running


def consume(broker: ottla.Broker, *options: str) -> list[str]:
    done = run_command("consume", "hours", "-b", broker.bootstrap_servers, *options)
    assert (done.status, done.err) == (0, ""), done
    return done.out.decode().splitlines()


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ("--tail 3 --exit", "k7 k8 k9"),
        ("--tail 0 --exit", ""),
        ("--tail 99 --exit", "k0 k1 k2 k3 k4 k5 k6 k7 k8 k9"),
        ("--tail 2 --exit --partition 0", "k6 k8"),
        ("--tail 2 --exit --filter header.trace=t0", "k6 k9"),
        ("--tail 1 --exit --filter key=k0", "k0"),
        (f"--from-time {FIRST_MS + 7 * HOUR_MS} --exit", "k7 k8 k9"),
        (f"--from-time {FIRST_MS + 7 * HOUR_MS - 1} --exit --partition 1", "k7 k9"),
        ("--from-time now --exit", ""),
        (f"--until {FIRST_MS + 2 * HOUR_MS}", "k0 k1"),
        (f"--from-time {FIRST_MS + HOUR_MS} --until {FIRST_MS + 4 * HOUR_MS}", "k1 k2 k3"),
        ("--from-time 2023-11-15T00:13:20 --until 2023-11-15T02:13:20+00:00", "k2 k3"),
        ("--offset 4 --exit", "k8 k9"),
        ("--exit --filter key~^k[12]$", "k1 k2"),
        ("--exit --filter value.odd=true --filter header.trace!=t1", "k3 k5 k9"),
        ("--exit --filter value.in.list.1=4", "k4"),
        ("--exit --filter value.nope=4", ""),
        ("--exit --filter value.in.list.9!=4 -n 1", "k0"),
        ('--exit --filter value~"n":.[89] -n 9', "k8 k9"),
        ("--exit --filter header.trace!~[12]", "k0 k3 k6 k9"),
    ],
)
def test_consume_options_select_records(broker: ottla.Broker, options: str, keys: str) -> None:
    seen = consume(broker, *options.split(), "--format", "%k")
    assert sorted(seen) == keys.split()
    if "--tail" in options:
        assert seen == keys.split()


def test_consume_format_prints_all_fields(broker: ottla.Broker) -> None:
    (text,) = consume(broker, "--exit", "--filter", "key=k4", "--format", r"%t-%p@%o %k %h %T %K\t%S%%")
    assert text == f"hours-0@2 k4 trace=t1,n=NULL {FIRST_MS + 4 * HOUR_MS} 2\t48%"


def test_consume_tail_prints_last_records(broker: ottla.Broker) -> None:
    assert consume(broker, "--tail", "1", "-n", "0", "--format", "%k") == ["k9"]


def test_format_record_null_and_non_utf8_bytes() -> None:
    record = Record(5, -1, None, b"\xff\0")
    assert format_record(parse_record_format("%k|%v|%b|%K"), "t", 1, record) == b"|\xff\0|/wA=|-1"
    assert format_record(parse_record_format(r"%S\\%s"), "t", 1, record._replace(value=None)) == b"-1\\"


@pytest.mark.parametrize(("text", "problem"), [("%x", "%x"), ("a\\q", "\\q"), ("%", "%%"), ("x\\", "\\\\")])
def test_parse_record_format_invalid_raises_argument_type_error(text: str, problem: str) -> None:
    with pytest.raises(ArgumentTypeError) as raised:
        parse_record_format(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["", "value", "header=x", "offset=3", "value>3", "headers.a=3"])
def test_parse_record_filter_invalid_raises_argument_type_error(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="value~REGEX"):
        parse_record_filter(text)


def test_record_filter_missing_header_or_invalid_json_matches_only_negation() -> None:
    record = Record(0, 0, None, b"{", (("a", b"1"), ("a", b"2")))
    assert parse_record_filter("header.a=2").matches(record)
    assert not parse_record_filter("header.b=2").matches(record)
    assert parse_record_filter("header.b!=2").matches(record)
    assert not parse_record_filter("value.a=1").matches(record)
    assert not parse_record_filter("key=").matches(record)
    with pytest.raises(ArgumentTypeError, match="invalid regular expression"):
        parse_record_filter("value~(")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", 10**12),
        ("90s", 10**12 - 90_000),
        ("1d2h", 10**12 - 26 * HOUR_MS),
        ("1769857200000", 1769857200000),
        ("20260131", 1769817600000),
        ("2026-01-31T12:00:00+01:00", 1769857200000),
    ],
)
def test_parse_time_accepts_relative_iso_and_milliseconds(text: str, time_ms: int) -> None:
    assert parse_time(text, 10**12) == time_ms


@pytest.mark.parametrize("text", ["", "1", "yesterday", "1h30", "-1h", "1969-01-01", "99999d"])
def test_parse_time_invalid_raises_command_failed(text: str) -> None:
    with pytest.raises(CommandFailed, match=f"{text}$"):
        parse_time(text, 10**12)
