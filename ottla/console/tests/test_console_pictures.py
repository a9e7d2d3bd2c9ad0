"""Pictures of the documentation: taken of a cluster with example data, with a fixed size in pixels and few bytes.

Set ``OTTLA_DOC_PICTURES=docs/pictures`` to write them.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import ottla
from compat_tests.support.processes import free_port
from compat_tests.support.raw_client import RawClient
from ottla.client.cluster_client import ClusterClient
from ottla.console.schemas.tests.test_avro_decoder import encode
from ottla.console.tests.test_console_browser import CHROMIUM, Walk, browse
from ottla.console.tests.test_console_quotas import set_quota
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.tools.blocking_client import BlockingClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

pytestmark = pytest.mark.xdist_group(__name__)
DOCS = Path(__file__).parents[3] / "docs"
MAX_PICTURE_BYTES = 100 * 1024
PICTURES = {
    "console-overview": ("/", 1200, 620),
    "console-records": ("/records?name=orders&from=start", 1200, 640),
    "console-connections": ("/connections?q=plaintext", 1950, 460),
    "console-rebalance": ("/cluster/rebalance", 1200, 620),
}
"""Path, width and height in pixels of each picture."""
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}],
}


async def create_topics(bootstrap_servers: str) -> None:
    """Create a topic with all replicas on two of three brokers, and another one."""
    client = ClusterClient(BlockingEnv(), bootstrap_servers)
    brokers = sorted(broker.node_id for broker in (await client.metadata([])).brokers)
    rows = [CreatableReplicaAssignment(number, brokers[:2]) for number in range(6)]
    topics = [CreatableTopic("orders", -1, -1, rows), CreatableTopic("payments", 3, 3)]
    response = await client.call(CreateTopicsRequest(topics, 10_000))
    assert [row.error_code for row in response.topics] == [0, 0]
    client.close()


def fill(cluster: ottla.Cluster) -> None:
    """Append orders, one of them malformed, commit an offset, and set a quota."""
    run_blocking(create_topics(cluster.bootstrap_servers))
    client = BlockingClient(cluster.bootstrap_servers)
    for number in range(12):
        value = encode(ORDER, {"id": 1000 + number, "state": "PAID" if number % 3 else "NEW"})
        client.produce("orders", value if number != 1 else value + b"?", key=f"customer-{number % 4}", partition=0)
    run_blocking(set_quota(cluster.bootstrap_servers, "consumer_byte_rate", 5 * 1024 * 1024, "stock"))


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    pytest.importorskip("playwright.sync_api")
    (tmp_path / "orders-value.avsc").write_text(json.dumps(ORDER))
    port = free_port()
    settings = {"ottla.console.listener": f"127.0.0.1:{port}", "ottla.console.schema.dir": str(tmp_path)}
    with ottla.Cluster(3, settings=settings) as cluster:
        fill(cluster)
        server = cluster.bootstrap_servers.split(",")[0]
        config = {"bootstrap.servers": server, "client.id": "stock", "group.id": "stock"}
        consumer = Consumer(config)
        consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        raw = RawClient(int(server.rpartition(":")[2]))
        raw.client_id = "billing"
        topic = FetchTopic("orders", partitions=[FetchPartition(0, fetch_offset=500, partition_max_bytes=100)])
        raw.call(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]))
        with browse(port) as made:
            yield made
        raw.sock.close()
        consumer.close()


def png_size(raw: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", raw, 16)
    return width, height


def test_pictures_have_their_size_in_pixels(walk: Walk, tmp_path: Path) -> None:
    folder = Path(os.environ.get("OTTLA_DOC_PICTURES", tmp_path))
    walk.page.emulate_media(color_scheme="light")
    for name, (path, width, height) in PICTURES.items():
        walk.page.set_viewport_size({"width": width, "height": height})
        walk.page.goto(walk.address + path)
        raw = walk.page.screenshot(path=str(folder / f"{name}.png"), scale="css")
        assert png_size(raw) == (width, height)


def test_pictures_of_the_documentation_are_those_of_this_test() -> None:
    files = {file.stem: file.read_bytes() for file in (DOCS / "pictures").iterdir()}
    assert files.keys() == PICTURES.keys()
    text = (DOCS / "reference" / "console.md").read_text()
    for name, raw in files.items():
        assert png_size(raw) == PICTURES[name][1:]
        assert len(raw) <= MAX_PICTURE_BYTES
        assert f"(../pictures/{name}.png)" in text
