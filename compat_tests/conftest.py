"""Fixtures: a node for a module, a topic and a group for a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.support.processes import CHECKED_OTTLA_COMMAND, OttlaProcess

OttlaProcess.program = CHECKED_OTTLA_COMMAND
_numbers = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """Node of the module, which must end without a traceback in its log."""
    process = OttlaProcess(tmp_path_factory.mktemp("node") / "data")
    with process:
        yield process
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.fixture
def topic() -> str:
    """Name of a topic that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    """Name of a group that no other test uses."""
    return f"group-{next(_numbers)}"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Path of a data directory that does not exist yet."""
    return tmp_path / "data"
