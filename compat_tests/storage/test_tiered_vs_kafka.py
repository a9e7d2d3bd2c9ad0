"""Tiered storage beside Apache Kafka: the same topics and requests, and each response compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.storage.tiered_nodes import OTTLA_LACKS, TieredKafka, TieredOttla
from compat_tests.storage.tiered_script import answers_of
from compat_tests.storage.tiered_session import END_OFFSET, LOCAL_START
from compat_tests.vs_kafka.answer_comparison import differences, normalize_order
from ottla.wire.errors import ErrorCode

MIN_REQUESTS = 60
Answers = dict[str, Any]


@pytest.fixture(scope="module")
def kafka_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with TieredKafka(tmp_path_factory.mktemp("tiered-kafka") / "data") as kafka:
        answers = answers_of(kafka.port)
    assert len(answers) == len(dict(answers)), "each label occurs once"
    return dict(answers)


def row_of(answer: Any) -> Any:
    """Return the first partition of a response."""
    topic = answer["responses" if "responses" in answer else "topics"][0]
    return topic["partitions"][0]


def test_script_reaches_the_remote_tier_of_kafka(kafka_answers: Answers) -> None:
    assert len(kafka_answers) >= MIN_REQUESTS
    row = row_of(kafka_answers["fetch 0, 1048576 bytes, isolation 0"])
    assert (row["error_code"], row["log_start_offset"], row["high_watermark"]) == (0, 0, END_OFFSET)
    assert row["records"]["batches"][0].startswith("0+3 epoch 0 ")
    assert row_of(kafka_answers["list -4 v11"])["offset"] == LOCAL_START
    assert row_of(kafka_answers["fetch 0, replica -3"])["error_code"] == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


@pytest.mark.skipif(bool(OTTLA_LACKS), reason=OTTLA_LACKS)
def test_responses_about_both_tiers_equal_kafkas(kafka_answers: Answers, tmp_path: Path) -> None:
    with TieredOttla(tmp_path / "data") as node:
        answers = dict(answers_of(node.port))
    assert answers.keys() == kafka_answers.keys()
    found = [
        f"{label}{text}"
        for label, theirs in kafka_answers.items()
        for text in differences(normalize_order(answers[label]), normalize_order(theirs))
    ]
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:80])
