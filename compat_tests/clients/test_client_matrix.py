"""Stock clients against a node and against Kafka: the same cells pass, and the documentation lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.clients.client_matrix import (
    BASE_MS,
    CLIENTS,
    MATRIX_CELLS,
    NO,
    NOT_OFFERED,
    YES,
    evaluate_cells,
    format_table,
    measure_clients,
)
from compat_tests.support.processes import KafkaProcess, OttlaProcess

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "clients.md"
pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str] | str]:
    with OttlaProcess(tmp_path_factory.mktemp("matrix") / "ottla") as node:
        return measure_clients(node.bootstrap)


def test_client_matrix_of_a_node_equals_matrix_of_kafka(rows: dict[str, dict[str, str] | str], tmp_path: Path) -> None:
    with KafkaProcess(tmp_path / "kafka") as kafka:
        theirs = measure_clients(kafka.bootstrap)
    for name, cells in theirs.items():
        ours = rows[name]
        if isinstance(cells, str) or isinstance(ours, str):
            assert isinstance(ours, str) == isinstance(cells, str)
            continue
        worse = {cell: ours[cell] for cell in MATRIX_CELLS if cells[cell] == YES and ours[cell] != YES}
        assert not worse, f"{name}: {worse}"


def test_client_matrix_in_documentation_equals_measured_matrix(rows: dict[str, dict[str, str] | str]) -> None:
    assert len(rows) == len(CLIENTS) >= 12
    documented = DOCS.read_text()
    for line in format_table(rows).splitlines():
        assert line in documented or "left out:" in line, line


def test_evaluate_cells_with_lost_record_timestamp_or_codec_fails_the_cells() -> None:
    good = {
        "codecs": ["none"],
        "got": [
            [None if i % 7 == 0 else f"key-{i}", None if i % 11 == 5 else f"none-{i}", str(i), BASE_MS + i]
            for i in range(40)
        ],
        "end": 40,
        "big": 1_000_000,
        "deleted": True,
    }
    cells = evaluate_cells(good)
    assert set(cells.values()) == {YES, NOT_OFFERED}
    assert cells["gzip"] == NOT_OFFERED
    lost = evaluate_cells({**good, "got": good["got"][1:]})  # type: ignore[index]
    assert lost["none"] == lost["keys, nulls, headers"] == NO
    wrong = [[*row[:3], 5] for row in good["got"]]  # type: ignore[attr-defined]
    assert evaluate_cells({**good, "got": wrong})["timestamps"] == NO
    assert evaluate_cells({**good, "big": 5})["1 MB"] == NO
    assert evaluate_cells({**good, "deleted": False})["admin"] == NO
