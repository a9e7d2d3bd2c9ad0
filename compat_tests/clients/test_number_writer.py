"""`NumberWriter`, which other tests rely on: full queue, number of records sent, reported failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.number_writer import NumberWriter, partitioned
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import wait_until

LIMIT = 100


def test_number_writer_with_full_queue_waits_and_loses_no_number(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with OttlaProcess(data_dir) as node:
        writer = NumberWriter(node.bootstrap, "t", partitioned(1), max_unacknowledged=LIMIT, pause_s=0.001)
        writer.start()
        writer.wait_for_progress()
        node.kill()
    wait_until(lambda: writer.sent - len(writer.acknowledged) == LIMIT)
    with OttlaProcess(data_dir, node.port):
        writer.wait_for_progress(2 * LIMIT)
        writer.stop()
    assert writer.refused == []
    assert writer.acknowledged == list(range(writer.sent))


def test_number_writer_with_failing_thread_raises_its_exception(tmp_path: Path) -> None:
    def record(number: int) -> dict[str, Any]:
        if number == 5:
            raise LookupError("no record 5")
        return {"value": b"%d" % number}

    with OttlaProcess(tmp_path / "data") as node:
        writer = NumberWriter(node.bootstrap, "t", record)
        writer.start()
        with pytest.raises(AssertionError, match=r"writer ended: .*no record 5"):
            writer.wait_for_progress(10)
        with pytest.raises(LookupError, match="no record 5"):
            writer.stop()
        assert writer.sent == 5
