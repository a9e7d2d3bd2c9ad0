"""``ottla config``: configs of brokers, topics, groups and client metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker(settings={"num.partitions": 2}) as broker:
        broker.client.create_topic("t")
        yield broker.bootstrap_servers


def rows(node: str, *words: str) -> list[dict[str, Any]]:
    done = run_command("config", *words, "-b", node, "-o", "json")
    assert (done.status, done.err) == (0, ""), done
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "source"),
    [
        ("topic", "t", "retention.ms", "5000", "topic"),
        ("group", "g", "consumer.session.timeout.ms", "46000", "group"),
        ("broker", "1", "log.cleaner.threads", "2", "broker"),
        ("broker", "default", "log.retention.ms", "86400000", "all brokers"),
        ("client-metrics", "m", "interval.ms", "60000", "client metrics"),
        ("logger", "1", "ottla.admin", "DEBUG", "logger"),
    ],
)
def test_config_set_and_unset_of_each_resource_type(
    node: str, kind: str, name: str, key: str, value: str, source: str
) -> None:
    assert rows(node, "set", kind, name, f"{key}={value}") == [{"key": key, "value": value, "changed": "set"}]
    (found,) = [row for row in rows(node, "describe", kind, name) if row["key"] == key]
    assert (found["value"], found["source"]) == (value, source)
    assert rows(node, "unset", kind, name, key) == [{"key": key, "value": None, "changed": "unset"}]
    assert value not in [row["value"] for row in rows(node, "describe", kind, name) if row["key"] == key]


def test_config_describe_broker_shows_file_and_with_all_the_defaults(node: str) -> None:
    shown = {row["key"]: row for row in rows(node, "describe", "broker", "1")}
    assert (shown["num.partitions"]["value"], shown["num.partitions"]["source"]) == ("2", "file")
    assert shown["num.partitions"]["read_only"] is True
    everything = {row["key"]: row for row in rows(node, "describe", "broker", "1", "--all")}
    assert everything.keys() > shown.keys()
    assert everything["log.segment.bytes"]["source"] == "default"


def test_config_describe_hides_secrets_of_listener_configs(node: str) -> None:
    key = "listener.name.other.ssl.keystore.password"
    run_command("config", "set", "broker", "1", f"{key}=zz", "-b", node)
    seen = run_command("config", "describe", "broker", "1", "-b", node, "-o", "csv").out.decode()
    assert "zz" not in seen


def test_config_describe_without_configs_prints_only_defaults(node: str) -> None:
    done = run_command("config", "describe", "group", "nothing", "-b", node)
    assert (done.status, done.out, done.err) == (0, b"", "group nothing: no settings but defaults\n")
