"""Tiered storage beside Apache Kafka: the same topics and requests, and each response compared.

Kafka's responses are recorded, so that a node is compared without Java. The campaign (``OTTLA_TIERED_KAFKA=1``)
compares the recording with a running Kafka.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from compat_tests.storage.tiered_answers import compare_answers, load_recording
from compat_tests.storage.tiered_nodes import TieredKafka, tiered_broker
from compat_tests.storage.tiered_script import answers_of
from compat_tests.storage.tiered_session import COPIED_END, END_OFFSET, LOCAL_START
from ottla.wire.errors import ErrorCode

MIN_REQUESTS = 350
needs_campaign = pytest.mark.skipif("OTTLA_TIERED_KAFKA" not in os.environ, reason="in the campaign tiered-kafka")


def row_of(answer: Any) -> Any:
    """Return the first partition of a response."""
    topic = answer["responses" if "responses" in answer else "topics"][0]
    return topic["partitions"][0]


def test_recording_of_kafka_has_reads_of_both_tiers() -> None:
    theirs = load_recording()
    assert len(theirs) >= MIN_REQUESTS
    row = row_of(theirs["fetch 0, 1048576 bytes, isolation 0"])
    assert (row["error_code"], row["log_start_offset"], row["high_watermark"]) == (0, 0, END_OFFSET)
    assert row["records"]["batches"][0].startswith("0+3 epoch 0 ")
    offsets = [row_of(theirs[f"list {timestamp} v11"])["offset"] for timestamp in (-1, -2, -4, -5, -6)]
    assert offsets == [END_OFFSET, 0, LOCAL_START, COPIED_END - 1, COPIED_END]
    assert row_of(theirs["fetch 0, replica -3"])["error_code"] == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


@pytest.mark.behaviour("P-101", "P-102", "P-103", "P-104")
def test_responses_about_both_tiers_equal_the_recording(tmp_path: Path) -> None:
    with tiered_broker(tmp_path) as broker:
        found = compare_answers(dict(answers_of(broker.port)), load_recording())
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:80])


@needs_campaign
def test_recording_about_both_tiers_equals_a_running_kafka(tmp_path: Path) -> None:
    with TieredKafka(tmp_path / "kafka") as kafka:
        found = compare_answers(dict(answers_of(kafka.port)), load_recording())
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:80])
