"""Configuration reference: every setting has a page and a description in plain words."""

from __future__ import annotations

import re

import pytest

from devtools.docs.config_pages import (
    broker_settings,
    client_metrics_settings,
    group_settings,
    index_page,
    topic_of,
    topic_page,
    topic_settings,
)
from devtools.docs.config_topics import REJECTED, TOPIC_OF_PREFIX, TOPICS
from devtools.docs.config_values import describe_default, describe_type, describe_valid_values
from ottla.broker.config.key_docs import BROKER_DOCS, WITHOUT_EFFECT
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.wire.tests.test_explanations import faults

SETTINGS = [*broker_settings(), *topic_settings(), *group_settings(), *client_metrics_settings()]
TEXTS = {**{f"{s.name}: {s.update}": (s.name, s.text) for s in SETTINGS if not s.no_effect}}


@pytest.mark.parametrize("place", TEXTS)
def test_description_of_a_setting_is_plain(place: str) -> None:
    name, text = TEXTS[place]
    assert faults(name, text) == []


def test_reason_without_effect_is_plain_and_used() -> None:
    names = [name for name in BROKER_KEYS if name not in BROKER_DOCS]
    used = {next(prefix for prefix, _ in WITHOUT_EFFECT if name.startswith(prefix)) for name in names}
    assert used == {prefix for prefix, _ in WITHOUT_EFFECT}
    assert {prefix: faults(prefix, f"No effect: {reason}.") for prefix, reason in WITHOUT_EFFECT} == {
        prefix: [] for prefix, _ in WITHOUT_EFFECT
    }


def test_each_prefix_of_a_page_matches_a_setting() -> None:
    names = [setting.name for setting in broker_settings()]
    matching = {max((prefix for prefix in TOPIC_OF_PREFIX if name.startswith(prefix)), key=len) for name in names}
    assert matching == set(TOPIC_OF_PREFIX)
    assert {topic_of(name) for name in names} == set(TOPICS)
    assert set(REJECTED) <= set(BROKER_KEYS)


def test_index_links_to_the_heading_of_each_setting() -> None:
    links = re.findall(r"^\| \[([^\]]+)\]\(config/([\w-]+)\.md#(\w[\w-]*)\)", index_page(), re.M)
    assert [name for name, _, _ in links] == sorted(setting.name for setting in broker_settings())
    for topic in TOPICS:
        headings = re.findall(r"^### (.*)$", topic_page(topic), re.M)
        assert len(headings) == len(set(headings))
        assert {name for name, page, _ in links if page == topic} <= set(headings)


@pytest.mark.parametrize(
    ("kind", "check", "text"),
    [
        ("INT", "1..", "at least 1"),
        ("DOUBLE", "0..1", "0 to 1"),
        ("INT", "1..9,-1", "1 to 9, or -1"),
        ("STRING", "a|b", "`a`, `b`"),
        ("LIST", "a|b", "elements: `a`, `b`"),
        ("LIST", "some:a|b", "at least one of `a`, `b`"),
        ("STRING", "anycase:A|B", "in any case: `A`, `B`"),
        ("BOOLEAN", "-", "`true`, `false`"),
        ("LONG", "-2..", "at least -2"),
    ],
)
def test_describe_valid_values(kind: str, check: str, text: str) -> None:
    assert describe_valid_values(kind, check) == text


@pytest.mark.parametrize(
    ("name", "default", "text"),
    [
        ("log.retention.ms", "604800000", "`604800000` (7 d)"),
        ("segment.bytes", "1073741824", "`1073741824` (1 GiB)"),
        ("message.max.bytes", "1048588", "`1048588`"),
        ("flush.ms", "9223372036854775807", "`9223372036854775807` (no limit)"),
        ("node.id", "<required>", "none; has to be set"),
        ("super.users", "", "empty"),
        ("broker.rack", None, "none"),
    ],
)
def test_describe_default(name: str, default: str | None, text: str) -> None:
    assert describe_default(name, default) == text


def test_describe_type_names_the_unit_of_a_number() -> None:
    assert describe_type("log.retention.ms", "LONG") == "long, in ms"
    assert describe_type("leader.replication.throttled.rate", "LONG") == "long, in bytes per second"
    assert describe_type("num.partitions", "INT") == "int"
    assert describe_type("log.message.timestamp.type", "STRING") == "string"
