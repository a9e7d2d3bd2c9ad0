"""Round trip of our bytes through Kafka's generated classes: equal bytes and instances, for every version."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

from compat_tests.support.jars import classpath, jars
from ottla.wire.codec import compiler
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.tests.random_messages import random_message

INSTANCES = 12
PACKAGES = {
    "metadata_records": "org.apache.kafka.common.metadata.",
    "offset_records": "org.apache.kafka.coordinator.group.generated.",
    "consumer_group_records": "org.apache.kafka.coordinator.group.generated.",
    "share_group_records": "org.apache.kafka.coordinator.group.generated.",
    "streams_group_records": "org.apache.kafka.coordinator.group.generated.",
    "transaction_records": "org.apache.kafka.coordinator.transaction.generated.",
    "share_state_records": "org.apache.kafka.coordinator.share.generated.",
    "remote_log_records": "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    "quorum_state": "org.apache.kafka.raft.generated.",
    "producer_snapshot": "org.apache.kafka.server.log.remote.metadata.storage.generated.",
}


def java_name(name: str, cls: type[Message]) -> str:
    module = cls.__module__.rsplit(".", 1)[1]
    suffix = "Data" if spec_of(cls).type in ("request", "response", "header") else ""
    return PACKAGES.get(module, "org.apache.kafka.common.message.") + name + suffix


def test_messages_decoded_and_encoded_by_kafka_keep_their_bytes() -> None:
    jars("kafka")
    rng = random.Random(7)
    sent: list[tuple[str, int, Message, bytes]] = []
    frames = []
    for name, cls in sorted(all_messages().items()):
        versions = spec_of(cls).versions
        for version in range(versions.low, versions.high + 1):
            for _ in range(INSTANCES):
                message = random_message(rng, cls, version)
                raw = compiler.encode(message, version)
                sent.append((name, version, message, raw))
                java = java_name(name, cls).encode()
                frames.append(struct.pack(">H", len(java)) + java + struct.pack(">hi", version, len(raw)) + raw)
    program = Path(__file__).parent.parent / "java" / "RoundTrip.java"
    done = subprocess.run(
        ["java", "-cp", classpath(), str(program)],
        input=struct.pack(">i", len(frames)) + b"".join(frames),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    out, pos, failures = done.stdout, 0, []
    for name, version, message, raw in sent:
        (size,) = struct.unpack_from(">i", out, pos)
        pos += 4
        if size < 0:
            (length,) = struct.unpack_from(">H", out, pos)
            failures.append(f"{name} v{version}: {out[pos + 2 : pos + 2 + length].decode()} for {message}")
            pos += 2 + length
            continue
        back = out[pos : pos + size]
        pos += size
        if back != raw:
            failures.append(f"{name} v{version}: {back.hex()} is not {raw.hex()} for {message}")
        elif compiler.decode_exact(type(message), version, back) != message:
            failures.append(f"{name} v{version}: decoded differently")
    assert len(sent) >= 8000
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:10])
