"""Drawn compressed batches, compared with Kafka's LogValidator and its consumer."""

from __future__ import annotations

import base64
import os
import random
import zlib

from compat_tests.vs_kafka.random_batches import CORRUPTED, TRAILING_BYTES, TRUNCATED, RandomBatch, RandomBatchGenerator
from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import NOW, memory_disk, new_log
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.compression import CompressionType, compress, create_compressor

BATCHES = int(os.environ.get("OTTLA_BATCHES", "1000"))
SEED = int(os.environ.get("OTTLA_SEED", "1"))


def appended(raw: bytes, *, validate: bool) -> int:
    """Return the error code of an append; with `validate` every record is checked, as in Kafka."""
    log: PartitionLog = new_log(memory_disk().session(), LogConfig(validate_records=validate))
    try:
        log.append_as_leader(bytearray(raw), 0, NOW)
    except ProtocolError as error:
        return int(error.code)
    return 0


def consumed(raw: bytes) -> str:
    """Return the records of a consumer, in the format of BatchValidation.java."""
    crc = count = 0
    try:
        for record in records.iterate_records(raw, batch_header.parse_header(raw)):
            count += 1
            crc = zlib.crc32(record.value or b"", zlib.crc32(record.key or b"", crc))
    except WireError:
        return "refused"
    return f"read {count} {crc}"


def difference(one: RandomBatch, answer: str) -> str | None:
    """Return the difference between the acceptance of a batch here and by Kafka; empty if there is none.

    With changed bytes, the records inside may be damaged, and Kafka's append does not check all of them: then an
    accepted batch must be readable by a consumer, and a readable batch must not be refused by its first bytes. With
    data cut off or followed by other bytes, two errors may meet, and either may be reported.
    """
    kafkas, response = answer.split(" ", 1)
    response = "refused" if response.startswith("refused") else response
    validated, early = appended(one.batch, validate=True), appended(one.batch, validate=False)
    read = consumed(one.batch)
    if CORRUPTED in one.description:
        good = validated != 0 or read == response != "refused"
        good = good and (early == 0 or response == "refused")
    elif TRUNCATED in one.description or TRAILING_BYTES in one.description:
        good = (validated != 0, read) == (kafkas != "0", response) and early in (0, validated)
    else:
        good = (validated, read) == (int(kafkas), response) and early in (0, validated)
    return None if good else f"{one.description}: {validated} {early} {read}, Kafka {answer}"


def test_compressed_batches_drawn_at_random_are_accepted_as_by_kafka() -> None:
    """Refusal by the first bytes without decompression; no batch that Kafka accepts is refused."""
    drawer = RandomBatchGenerator(SEED)
    drawn = [drawer.generate() for _ in range(BATCHES)]
    answers = run_kafka_rules("BatchValidation.java", [base64.b64encode(one.batch).decode() for one in drawn])
    bad = [found for one, answer in zip(drawn, answers, strict=True) if (found := difference(one, answer))]
    assert not bad, f"{len(bad)} of {len(drawn)}:\n" + "\n".join(bad[:60])
    refused = sum(not answer.startswith("0 ") for answer in answers)
    assert 0.2 * len(drawn) < refused < 0.8 * len(drawn)


LEVELS: dict[CompressionType, tuple[int | None, ...]] = {
    CompressionType.GZIP: (None, 1, 9),
    CompressionType.SNAPPY: (None,),
    CompressionType.LZ4: (None, 1, 9, 17),
    CompressionType.ZSTD: (None, -131072, 1, 19),
}


def test_batches_compressed_by_broker_are_read_by_kafka() -> None:
    """Compression as a whole and in pieces, at both ends of the levels, and in more than one block."""
    rng = random.Random(SEED)
    value = rng.randbytes(90_000) + b"again and again " * 10_000
    plain = records.build_batch([records.NewRecord(b"k", value, NOW), records.NewRecord(None, b"v", NOW)])
    header, data = batch_header.parse_header(plain), plain[batch_header.HEADER_BYTES :]
    batches = []
    for codec, levels in LEVELS.items():
        for level in levels:
            pack = create_compressor(codec, level)
            pieces = b"".join(pack.add(data[at : at + 7000]) for at in range(0, len(data), 7000)) + pack.finish()
            for packed in (compress(codec, data, level), pieces):
                batches.append(batch_header.pack_batch(header._replace(attributes=int(codec)), packed))
    answers = run_kafka_rules("BatchValidation.java", [base64.b64encode(raw).decode() for raw in batches])
    assert answers == [f"0 {consumed(plain)}"] * len(batches)
    assert [appended(raw, validate=False) for raw in batches] == [0] * len(batches)
