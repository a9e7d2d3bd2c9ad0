"""Changes of the same settings of a running Kafka and a running Ottla, with comparison of responses and values."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

from compat_tests.support.raw_client import RawClient
from compat_tests.vs_kafka.random_settings import RELATED, TABLES, RandomSettingsGenerator, candidate_values, config_key
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import GROUP_KEYS
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.messages import describe_configs, incremental_alter_configs
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TIMEOUT_S = 30.0
"""A broker applies a change some time after the controller has stored it."""


class ConfigChange(NamedTuple):
    """A change of one or two settings of a resource."""

    resource_type: int
    resource_name: str
    changes: tuple[tuple[str, int, str | None], ...]
    """Name, operation (0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT) and value."""


SET, DELETE, APPEND, SUBTRACT = range(4)
UNCHANGEABLE_PREFIXES = (
    "listeners",
    "connection",
    "listener.security.protocol.map",
    "ssl.",
    "sasl.",
    "principal",
    "config.providers",
)
"""Parts of names of settings that are left alone on the running brokers: some would make the broker unreachable."""
ELEMENTS = (
    "a",
    " a",
    "a ",
    "",
    "a,b",
    "b,,a",
    ",",
    "a,a",
    "0:1",
    " 0:1 ",
    "compact",
    "delete",
    " compact , delete ",
    "*",
)


def generate_changes(rng: random.Random, count: int) -> list[ConfigChange]:
    """Return drawn changes of settings of a topic, a group, a client-metrics subscription, this and all brokers."""
    dynamic = [
        n for n, k in BROKER_KEYS.items() if k.is_dynamic and not any(word in n for word in UNCHANGEABLE_PREFIXES)
    ]
    fixed = [n for n, k in BROKER_KEYS.items() if not k.is_dynamic and k.default != "<required>"]
    places: tuple[tuple[int, str, str, list[str]], ...] = (
        (2, "t", "topic", list(TABLES["topic"])),
        (32, "g", "group", list(GROUP_KEYS)),
        (4, "1", "broker", dynamic),
        (4, "", "broker", dynamic),
        (4, rng.choice(("1", "")), "broker", fixed),
    )
    out = []
    for number in range(count):
        resource_type, resource_name, kind, names = rng.choice(places) if number % 3 else places[number // 3 % 4]
        lists = [n for n in names if config_key(kind, n).type == "LIST"]
        if lists and rng.random() < 0.3:
            name = rng.choice(lists)
            out.append(
                ConfigChange(
                    resource_type, resource_name, ((name, rng.choice((SET, APPEND, SUBTRACT)), rng.choice(ELEMENTS)),)
                )
            )
        elif rng.random() < 0.1:
            name = rng.choice(names)
            operation = rng.choice((DELETE, APPEND, SUBTRACT, SET))
            out.append(ConfigChange(resource_type, resource_name, ((name, operation, rng.choice((None, "1", "x"))),)))
        else:
            related = [r for r in RELATED if all(n in names for n in r)]
            pair = rng.choice(related) if related and rng.random() < 0.2 else (rng.choice(names),)
            chosen = rng.sample(pair, min(2, len(pair)))
            likely = RandomSettingsGenerator(rng.randrange(1 << 30)).likely_value
            is_likely = rng.random() < 0.6
            values = [
                likely(kind, n) if is_likely else rng.choice(candidate_values(config_key(kind, n))) for n in chosen
            ]
            changes = tuple((n, SET, value) for n, value in zip(chosen, values, strict=True))
            out.append(ConfigChange(resource_type, resource_name, changes))
    return out


def generate_topic_configs(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Return drawn values of the LIST settings of a topic that is to be created."""
    lists = [name for name in TABLES["topic"] if config_key("topic", name).type == "LIST"]
    every = [(name, value) for name in lists for value in (*ELEMENTS, *candidate_values(config_key("topic", name)))]
    return rng.sample(every, min(count, len(every)))


class ConfigChangeClient:
    """Client that changes the settings of one broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = RawClient(port)
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 10_000)
        self._client.call(ApiKey.CREATE_TOPICS, 7, request)

    def _call(self, key: ApiKey, version: int, body: Message) -> Any:
        """Call, and once more where the connection was closed: Kafka closes some when it has fewer network threads."""
        try:
            return self._client.call(key, version, body)
        except ConnectionError:
            self._client.close()
            self._client = RawClient(self._port)
            return self._client.call(key, version, body)

    def create(self, topic: str, name: str, value: str) -> tuple[int, Any, Any]:
        """Create a topic with a setting and delete it; return the error, the returned and the described value."""
        row = CreatableTopic(topic, 1, 1, [], [CreatableTopicConfig(name, value)])
        (made,) = self._call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([row], 10_000)).topics
        if made.error_code:
            return made.error_code, None, None
        answered = [(x.value, x.config_source) for x in made.configs or () if x.name == name]
        step = ConfigChange(2, topic, ((name, SET, value),))
        until = time.monotonic() + TIMEOUT_S
        while not (shown := self.described_values(step)) and time.monotonic() < until:
            time.sleep(0.02)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic)], timeout_ms=10_000)
        self._call(ApiKey.DELETE_TOPICS, 6, request)
        return 0, answered, shown

    def alter(self, step: ConfigChange, *, validate_only: bool = False) -> tuple[int, str | None]:
        """Change settings; return the error and its message."""
        changes = [incremental_alter_configs.AlterableConfig(*change) for change in step.changes]
        resource = incremental_alter_configs.AlterConfigsResource(step.resource_type, step.resource_name, changes)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], validate_only)
        (row,) = self._call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        return row.error_code, row.error_message

    def described_values(self, step: ConfigChange) -> dict[str, Any]:
        """Return the values of the changed settings as they are described."""
        names = [name for name, _, _ in step.changes]
        resource = describe_configs.DescribeConfigsResource(step.resource_type, step.resource_name, names)
        (result,) = self._call(
            ApiKey.DESCRIBE_CONFIGS, 4, describe_configs.DescribeConfigsRequest([resource], True)
        ).results
        return {row.name: (row.value, row.config_source) for row in result.configs}

    def reset(self, step: ConfigChange) -> None:
        """Delete the changed settings."""
        self.alter(step._replace(changes=tuple((name, DELETE, None) for name, _, _ in step.changes)))


def find_difference(ours: ConfigChangeClient, kafka: ConfigChangeClient, step: ConfigChange) -> str | None:
    """Change both; return the difference."""
    mine, theirs = ours.alter(step), kafka.alter(step)
    if mine[0] != theirs[0]:
        return f"{step}: {mine}, Kafka: {theirs}"
    if mine[0]:
        return None
    until = time.monotonic() + TIMEOUT_S
    while (shown := ours.described_values(step)) != (
        expected := kafka.described_values(step)
    ) and time.monotonic() < until:
        time.sleep(0.02)
    return None if shown == expected else f"{step}: {shown}, Kafka: {expected}"
