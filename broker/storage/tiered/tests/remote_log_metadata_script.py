"""Commands to the classes of remote log metadata, and their answers, as Kafka's own classes give them."""

from __future__ import annotations

import random
from pathlib import Path

from ottla.broker.storage.tiered.leader_epoch_lineage import epochs_with_records, is_within_leader_epochs
from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadataUpdate,
    decode_remote_log_metadata,
    encode_remote_log_metadata,
    metadata_partition,
)
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundError,
)
from ottla.jobs.job import run_to_end
from ottla.wire.errors import WireError

TOPIC_ID = bytes(range(16))
MAX_OFFSET = 60
RECORDED_ANSWERS = Path(__file__).with_name("kafka_remote_log_metadata.txt")
"""Commands and the answers of Kafka's classes, as ``command => answer``."""
STATES = tuple(RemoteLogSegmentState)


class ScriptRunner:
    """Execution of a script by Ottla's classes."""

    def __init__(self) -> None:
        self.cache = RemoteLogMetadataCache()

    def answer(self, line: str) -> str:
        command, *words = line.split(" ")
        match command:
            case "reset":
                self.cache = RemoteLogMetadataCache()
                return "ok"
            case "initialize":
                self.cache.is_initialized = True
                return "ok"
            case "record":
                return self._record(bytes.fromhex(words[0]))
            case "segment":
                return _segment(self.cache.segment_for(int(words[0]), int(words[1])))
            case "txn":
                job = self.cache.next_segment_with_txn_index_job(int(words[0]), int(words[1]))
                return _segment(run_to_end(job))
            case "highest":
                highest = self.cache.highest_offset_for_epoch(int(words[0]))
                return "-" if highest is None else str(highest)
            case "list" | "all":
                found = self.cache.list_segments(int(words[0]) if words else None)
                assert command == "all" or found == sorted(found, key=lambda each: each.start_offset)
                return " ".join(
                    _segment(each) for each in sorted(found, key=lambda each: (each.start_offset, _segment(each)))
                )
            case "within":
                metadata = decode_remote_log_metadata(bytes.fromhex(words[0]))
                assert isinstance(metadata, RemoteLogSegmentMetadata)
                pairs = (pair.split(":") for pair in words[2].split(","))
                epochs = epochs_with_records((int(epoch), int(start)) for epoch, start in pairs)
                return str(is_within_leader_epochs(metadata, int(words[1]), epochs)).lower()
            case _:
                return str(metadata_partition(bytes.fromhex(words[0]), int(words[1]), int(words[2])))

    def _record(self, raw: bytes) -> str:
        try:
            record = decode_remote_log_metadata(raw)
        except WireError:
            return "rejected"
        text = encode_remote_log_metadata(record).hex()
        try:
            if isinstance(record, RemoteLogSegmentMetadata):
                if record.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                    assert not self.cache.add(record)
                    return f"{text} IllegalArgumentException"
                self.cache.add(record)
            elif isinstance(record, RemoteLogSegmentMetadataUpdate):
                self.cache.update(record)
        except RemoteResourceNotFoundError:
            return f"{text} RemoteResourceNotFoundException"
        return f"{text} ok"


def _segment(metadata: RemoteLogSegmentMetadata | None) -> str:
    return "-" if metadata is None else f"{metadata.segment_id.id[:4].hex()}:{metadata.state.value}"


def _draw_epochs(rng: random.Random, start: int, end: int) -> dict[int, int]:
    count = rng.randint(1, min(3, end - start + 1))
    epochs = sorted(rng.sample(range(6), count))
    return dict(zip(epochs, [start, *sorted(rng.sample(range(start + 1, end + 1), count - 1))], strict=True))


def draw_segment(rng: random.Random) -> RemoteLogSegmentMetadata:
    """Return a segment of 1 to 12 offsets that begins to be copied."""
    start = rng.randrange(MAX_OFFSET)
    end = start + rng.randint(0, 12)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TOPIC_ID, "orders", 3, rng.randbytes(16)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=rng.choice([-1, rng.getrandbits(40)]),
        broker_id=rng.randrange(5),
        event_timestamp_ms=rng.getrandbits(40),
        segment_size_bytes=rng.randrange(1, 1 << 30),
        segment_leader_epochs=_draw_epochs(rng, start, end),
        txn_index_empty=rng.random() < 0.5,
    )


def _draw_update(rng: random.Random, segment_id: RemoteLogSegmentId, state: RemoteLogSegmentState) -> RemoteLogMetadata:
    custom = rng.choice([None, b"", rng.randbytes(5)])
    return RemoteLogSegmentMetadataUpdate(segment_id, rng.getrandbits(40), custom, state, rng.randrange(5))


def draw_script(seed: int, records: int) -> list[str]:
    """Return a script of ``records`` records and some queries after each."""
    rng = random.Random(seed)
    states: dict[RemoteLogSegmentId, RemoteLogSegmentState] = {}
    script = ["reset"]
    for number in range(records):
        if number == records // 3:
            script.append("initialize")
        if not states or rng.random() < 0.35:
            record: RemoteLogMetadata = draw_segment(rng)
            assert isinstance(record, RemoteLogSegmentMetadata)
            states[record.segment_id] = record.state
        else:
            segment_id = rng.choice(list(states)[-8:])
            following = min(states[segment_id] + rng.choice([0, 1, 1, 1, 1, 2]), 3)
            state = STATES[following or 1]
            record = _draw_update(rng, segment_id, state)
            states[segment_id] = state
        script.append(f"record {encode_remote_log_metadata(record).hex()}")
        epoch, offset = rng.randrange(6), rng.randrange(MAX_OFFSET + 12)
        script += [f"segment {epoch} {offset}", f"txn {epoch} {offset}", f"highest {epoch}", f"list {epoch}", "all"]
        epochs = _draw_epochs(rng, rng.randrange(MAX_OFFSET // 2), MAX_OFFSET + 12)
        pairs = ",".join(f"{each}:{start}" for each, start in epochs.items())
        segment = encode_remote_log_metadata(draw_segment(rng)).hex()
        script.append(f"within {segment} {rng.choice([MAX_OFFSET // 2, MAX_OFFSET + 13])} {pairs}")
        script.append(f"partition {rng.randbytes(16).hex()} {rng.randrange(1000)} {rng.choice([1, 5, 50])}")
    return script
