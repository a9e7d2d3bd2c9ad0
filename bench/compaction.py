"""Speed of compaction, compared with Kafka on the same records, and its effect on clients.

The log is filled while cleaning is disabled by the dirty ratio; then the ratio is lowered, and the time until the
checkpoint has advanced is measured. With ``--beside`` Kafka's load tool runs against another topic before and during a
pass.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from bench.produce import run_load_tool
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, incremental_alter_configs, produce
from ottla.wire.record_batch.records import NewRecord, build_batch

TOPIC, SEGMENT_BYTES, BATCH = "dirty", 64 << 20, 200
WAIT_S = 600


def fill(peer: RawClient, records: int, keys: int) -> None:
    """Create the compacted topic `TOPIC`, and produce ``records`` records of about 100 bytes with ``keys`` random keys.

    Cleaning does not start: the minimum dirty ratio is 1.
    """
    settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "1.0"}
    configs = [create_topics.CreatableTopicConfig(k, v) for k, v in settings.items()]
    peer.call(
        ApiKey.CREATE_TOPICS,
        7,
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic(TOPIC, 1, 1, configs=configs)], 30_000),
    )
    rng, now = random.Random(1), time.time_ns() // 10**6
    pool = [
        build_batch([NewRecord(b"key-%08d" % rng.randrange(keys), b"x" * 80, now) for _ in range(BATCH)])
        for _ in range(min(records // BATCH, 2000))
    ]
    for number in range(records // BATCH):
        raw = pool[number % len(pool)]
        data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(0, raw)])
        while True:
            row = peer.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, 1, 30_000, [data])).responses[0]
            if not row.partition_responses[0].error_code:
                break
            time.sleep(0.05)


def start_compaction(peer: RawClient) -> None:
    """Lower the minimum dirty ratio of the topic, so that the cleaner starts; return at once."""
    change = incremental_alter_configs.AlterConfigsResource(
        2, TOPIC, [incremental_alter_configs.AlterableConfig("min.cleanable.dirty.ratio", 0, "0.01")]
    )
    peer.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([change]))


def wait_until_compacted(node: NodeProcess) -> float:
    """Wait until the cleaner checkpoint has the topic; return the time of the wait in s.

    Raises:
        TimeoutError: it has not after `WAIT_S`.
    """
    began = time.perf_counter()
    path = node.data_dir / "cleaner-offset-checkpoint"
    while not (path.exists() and f"{TOPIC} 0 " in path.read_text()):
        if time.perf_counter() - began > WAIT_S:
            raise TimeoutError("nothing was compacted")
        time.sleep(0.01)
    return time.perf_counter() - began


def main() -> None:
    """Measure the cleaners of Kafka and Ottla, or with ``--beside`` their effect on a producer; print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--beside", action="store_true", help="measure clients before and during a pass instead")
    options = parser.parse_args()
    quick = {"log_cleaner_backoff_ms": "100"}
    took = {}
    for name in ("kafka", "ottla"):
        with tempfile.TemporaryDirectory() as where:
            node: NodeProcess = (KafkaProcess if name == "kafka" else OttlaProcess)(Path(where) / "data", **quick)
            with node:
                fill(RawClient(node.port), options.records, options.keys)
                if options.beside:
                    java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "load")
                    run_load_tool(node, 500_000, 100)
                    before = run_load_tool(node, 1_500_000, 100)
                start_compaction(RawClient(node.port))
                if options.beside:
                    time.sleep(0.5)
                    during = run_load_tool(node, 1_500_000, 100)
                    ratio = during.records_a_second / before.records_a_second
                    print(
                        f"{name}: {before.records_a_second:,.0f}/s and p99 {before.p99_ms:.0f} ms alone, "
                        f"{during.records_a_second:,.0f}/s and {during.p99_ms:.0f} ms beside a pass: {ratio:.2f}",
                        flush=True,
                    )
                took[name] = wait_until_compacted(node)
                if not options.beside:
                    print(f"{name}: {options.records / took[name]:,.0f} records/s ({took[name]:.1f} s)", flush=True)
    if not options.beside:
        print(f"ottla / kafka: {took['kafka'] / took['ottla']:.2f}")


if __name__ == "__main__":
    main()
