"""Clean shutdown of log directories."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.storage.tests.test_log_dirs import (
    LogDirsFixture,
    put,
)


def test_close_writes_clean_shutdown_file_of_metadata_directory_last() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b", metadata="/b")
    put(storage, 0, "t")
    put(storage, 1, "u")
    fixture.calls.clear()
    storage.close(5)
    marks = [path for _, path in fixture.calls if "cleanshutdown" in path]
    assert [path.split("/")[1] for path in dict.fromkeys(marks)] == ["a", "b"]
    assert all(log.closed for log in storage.logs())


def test_close_with_failed_directory_marks_the_others_clean() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b", "/c")
    put(storage, 1, "u")
    fixture.broken = ("/b",)
    storage.close(5)
    assert list(storage.offline) == ["/b"]
    clean = {path.split("/")[1] for path in fixture.memory.files if path.endswith("cleanshutdown")}
    assert clean == {"a", "c"}


def test_close_with_failed_metadata_directory_raises() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b")
    fixture.broken = ("/a",)
    with pytest.raises(OSError, match="injected"):
        storage.close(5)


def test_close_skips_offline_directories() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b")
    storage.mark_offline(storage.directories[1], OSError(errno.EIO, "gone"))
    fixture.calls.clear()
    storage.close(5)
    assert not [path for _, path in fixture.calls if path.startswith("/b")]


@pytest.mark.behaviour("R-272")
@pytest.mark.parametrize(
    ("epochs", "fails", "expected"),
    [((5, 5), (), 5), ((5, 6), (), -1), ((5, None), (), -1), ((None, None), (), -1), ((5, 5), ("/b",), -1)],
)
def test_clean_shutdown_epoch_requires_agreement_of_all_directories(
    epochs: tuple[int | None, ...], fails: tuple[str, ...], expected: int
) -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b")
    for directory, epoch in zip(storage.directories, epochs, strict=True):
        if epoch is None:
            directory.unlock()
        else:
            directory.close(epoch)
    fixture.broken = fails
    again = fixture.begun("/a", "/b")
    assert again.clean_shutdown_epoch == expected
    for directory in again.directories:
        directory.ignore_checkpoints()
    assert again.clean_shutdown_epoch == -1
