"""Connections to a node by name, and all its responses in comparable form."""

from __future__ import annotations

import re
from typing import Any

from compat_tests.support.raw_client import RawClient, wait_until, wait_until_brokers_current
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.primitives import write_uvarint
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages import create_topics, incremental_alter_configs, list_offsets
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_MEMBER = re.compile(r"^.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_TIMES = ("log_append_time_ms", "transaction_start_time_ms")
_IDS = ("topic_id", "port", "cluster_id", "producer_id", "session_id", "log_dir", "usable_bytes", "total_bytes")
BASE_MS = 1_700_000_000_000


class ScenarioSession:
    """Connections by name, and the responses."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: dict[str, RawClient] = {}
        self.answers: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def __getitem__(self, name: str) -> RawClient:
        if name not in self.clients:
            self.clients[name] = RawClient(self.port)
        return self.clients[name]

    def call(self, label: str, key: ApiKey, version: int, body: Message, client: str = "a") -> Any:
        """Send a request and record its response."""
        try:
            answer = self[client].call(key, version, body)
        except ConnectionError:
            self.record_normalized(label, "closed")
            del self.clients[client]
            return None
        self.record(label, answer)
        return answer

    def record(self, label: str, answer: Any) -> None:
        """Record a response in comparable form."""
        self.record_normalized(label, self._named(to_json_value(answer)))

    def record_normalized(self, label: str, answer: Any) -> None:
        """Record a response without ids and times."""
        self.answers.append((label, answer))

    def _named(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self._named(v, k) for k, v in value.items() if k not in _IDS}
        if isinstance(value, list):
            rows = [self._named(v) for v in value]
            return sorted(rows, key=str) if field == "topic_partitions" else rows  # Kafka's order is that of the ids
        if isinstance(value, str) and _MEMBER.match(value):
            return self._names.setdefault(value, f"member {len(self._names) + 1}")
        if field in _TIMES and isinstance(value, int) and value >= 0:
            return "a time"
        return value

    def wait_until_current(self) -> None:
        """Wait until Kafka's broker has a change, a little after its controller has made it."""
        wait_until_brokers_current(self["a"])

    def topic(self, name: str, partitions: int = 1, **settings: str) -> bytes:
        """Create a topic and return its id."""
        configs = [create_topics.CreatableTopicConfig(k.replace("_", "."), v) for k, v in settings.items()]
        request = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, partitions, 1, configs=configs)], 10_000
        )
        answer = self.call(f"create {name}", ApiKey.CREATE_TOPICS, 7, request)
        ident: bytes = answer.topics[0].topic_id
        rows = [list_offsets.ListOffsetsPartition(number, -1, -1) for number in range(partitions)]
        ask = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(name, rows)])
        # Kafka responds before the broker leads the new partitions.
        wait_until(
            lambda: not any(x.error_code for x in self["a"].call(ApiKey.LIST_OFFSETS, 8, ask).topics[0].partitions)
        )
        return ident

    def produce(self, label: str, topic: str, raw: bytes, acks: int = -1, version: int = 11) -> Any:
        """Produce one batch to partition 0."""
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, raw)])
        return self.call(label, ApiKey.PRODUCE, version, ProduceRequest(None, acks, 10_000, [data]))

    def fetch(self, label: str, topic: str, offset: int, **more: Any) -> Any:
        """Fetch partition 0."""
        part = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic, partitions=[part])], **more
        )
        return self.call(label, ApiKey.FETCH, 12, request)

    def alter_configs(
        self, label: str, kind: int, name: str, *rows: tuple[str, int, str | None], dry: bool = False
    ) -> None:
        """Change settings of a resource."""
        configs = [incremental_alter_configs.AlterableConfig(k, op, v) for k, op, v in rows]
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(kind, name, configs)], dry
        )
        done = self.call(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        if kind == 4 and done is not None and not done.responses[0].error_code:
            self.wait_until_current()

    def set_oversized_value(self, label: str, topic: str, name: str, value: str) -> None:
        """Set a topic's setting to a value above the length limit.

        Our encoder refuses it, so a short one is extended.
        """
        resource = incremental_alter_configs.AlterConfigsResource(
            2, topic, [incremental_alter_configs.AlterableConfig(name, 0, "short")]
        )
        raw = encode_request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            1,
            "peer",
            incremental_alter_configs.IncrementalAlterConfigsRequest([resource]),
        )
        body = raw[4:].replace(write_uvarint(6) + b"short", write_uvarint(len(value) + 1) + value.encode())
        peer = self["a"]
        peer.sock.sendall(len(body).to_bytes(4, "big") + body)
        try:
            self.record_normalized(label, f"{len(peer.read())} bytes")
        except ConnectionError:
            self.record_normalized(label, "closed")
            del self.clients["a"]

    def describe_configs(self, label: str, kind: int, name: str, *keys: str) -> None:
        """Describe a resource's settings and their sources."""
        self.wait_until_current()
        resource = DescribeConfigsResource(kind, name, list(keys) or None)
        self.call(label, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest([resource], include_synonyms=True))
