"""Raw connection that sends any version of any API, valid or not."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.wire.api_keys import ApiKey, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages import describe_configs, incremental_alter_configs
from ottla.wire.messages.headers import ResponseHeader
from ottla.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

_GROUP, _UNKNOWN_CODE, _SETTING = 32, "waits-for-brokers", "consumer.session.timeout.ms"
_values = itertools.count()
WAIT_UNTIL_S = 180.0


def wait_until(done: Callable[[], bool], every_s: float = 0.05) -> None:
    """Repeat a call until it is true, each ``every_s``, for at most `WAIT_UNTIL_S`.

    Raises:
        TimeoutError: The call was never true.
    """
    deadline = time.monotonic() + WAIT_UNTIL_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for never came")
        time.sleep(every_s)


class RawClient:
    """Raw connection."""

    timeout_s = 60.0
    client_id = "peer"

    def __init__(self, port: int, timeout_s: float | None = None, source: str = "127.0.0.1") -> None:
        """Connect; ``source`` is the local address: all of 127.0.0.0/8 belong to this machine."""
        self.sock = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
        self.sock.settimeout(self.timeout_s if timeout_s is None else timeout_s)
        self.number = 0
        self.pending_requests: set[tuple[ApiKey, int]] = set()
        """Which requests it has sent, in which versions."""

    def call(self, key: ApiKey, version: int, body: Message) -> Any:
        """Send a request and decode the response; every byte of it must be used."""
        self.send(key, version, body)
        return self.receive(key, version)

    def produce(self, topic: str, partition: int, raw: bytes) -> PartitionProduceResponse:
        """Send a batch with acks=all and return the partition's response."""
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, raw)])
        answer = self.call(ApiKey.PRODUCE, 9, ProduceRequest(None, -1, 10_000, [data]))
        row: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return row

    def send(self, key: ApiKey, version: int, body: Message) -> None:
        """Send a request; its response is read later."""
        self.number += 1
        self.pending_requests.add((key, version))
        self.sock.sendall(encode_request(key, version, self.number, self.client_id, body))

    def receive(self, key: ApiKey, version: int) -> Any:
        """Return the response to the last request."""
        raw = self.read()
        header, pos = compiler.decode(ResponseHeader, response_header_version(key, version), raw)
        assert header.correlation_id == self.number
        answer, end = compiler.decode(response_class(key), version, raw, pos)
        assert end == len(raw), f"{key.name} v{version}: {len(raw) - end} bytes left over"
        return answer

    def read(self) -> bytes:
        """Read one frame."""
        (size,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        out = bytearray(size)
        done = 0
        while done < size:
            count = self.sock.recv_into(memoryview(out)[done:])
            if count == 0:
                raise ConnectionError("closed")
            done += count
        return bytes(out)

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def wait_until_brokers_current(*peers: RawClient) -> None:
    """Wait until brokers have applied all changes: Kafka's brokers learn of them after the response.

    A config of an unused group is changed at the first broker until all return it, and then once more: a broker may
    return the first value while it still applies other changes of the same batch, but not the second.

    Raises:
        TimeoutError: A broker does not return the value.
    """
    for _ in range(2):
        value = str(45_000 + next(_values) % 15_000)
        row = incremental_alter_configs.AlterConfigsResource(
            _GROUP, _UNKNOWN_CODE, [incremental_alter_configs.AlterableConfig(_SETTING, 0, value)]
        )
        peers[0].call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([row])
        )
        for peer in peers:
            wait_until(partial(_shows, peer, value), 0.01)


def _shows(peer: RawClient, value: str) -> bool:
    request = describe_configs.DescribeConfigsRequest(
        [describe_configs.DescribeConfigsResource(_GROUP, _UNKNOWN_CODE, [_SETTING])]
    )
    answer = peer.call(ApiKey.DESCRIBE_CONFIGS, 4, request)
    return bool(answer.results[0].configs[0].value == value)
