"""Names of directories and files in a log directory: Kafka's forms, and names that only resemble them."""

from __future__ import annotations

import pytest

from ottla.log.file_names import (
    CLEANED_FILE_SUFFIX,
    DELETE_DIR_SUFFIX,
    DELETED_FILE_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    SWAP_FILE_SUFFIX,
    is_temporary_file,
    is_unfinished_snapshot,
    parse_partition_dir,
    parse_segment_file,
    parse_suffixed_dir,
)

ID = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", ("t", 0)),
        ("a.b_c-d-12", ("a.b_c-d", 12)),
        (f"t-0.{ID}-delete-3", (f"t-0.{ID}-delete", 3)),
        ("t-2147483647", ("t", 2**31 - 1)),
        ("t-2147483648", None),
        ("backup-20240101120000", None),
        ("t-007", None),
        ("t-", None),
        ("-0", None),
        ("t", None),
        ("t 1-0", None),
        ("t-0\n", None),
        ("t-\u0661", None),
        ("lost+found", None),
    ],
)
def test_parse_partition_dir_accepts_topic_partition_only(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_partition_dir(name) == expected


@pytest.mark.parametrize("suffix", [DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX])
def test_parse_suffixed_dir_with_unique_id_returns_parts(suffix: str) -> None:
    assert parse_suffixed_dir(f"a.b-c-12.{ID}{suffix}") == ("a.b-c", 12, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "foo.1234-delete",
        "my-backup.2024-delete",
        "my-backup-1.2024-delete",
        "notes-delete",
        "my-future",
        "old-stray",
        "-delete",
        f"t.{ID}-delete",
        f"t-x.{ID}-delete",
        f"t-0{ID}-delete",
        f"t-0.{ID[1:]}-delete",
        f"t-0.{ID}0-delete",
        f"t-0.{ID.upper()}-delete",
        "t-0.01234567-89ab-cdef-0123-456789abcdef-delete",
        f"t-0.{ID}-deleted",
        f"t-0.{ID}-delete.old",
        f"t-0.{ID}-delete\n",
        f"t-99999999999.{ID}-delete",
        f"my notes-0.{ID}-delete",
    ],
)
def test_parse_suffixed_dir_with_foreign_name_returns_none(name: str) -> None:
    assert parse_suffixed_dir(name) is None


@pytest.mark.parametrize("state", ["", DELETED_FILE_SUFFIX, CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX])
@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_parse_segment_file_with_each_kind_and_state_returns_parts(kind: str, state: str) -> None:
    assert parse_segment_file(f"{7:020d}{kind}{state}") == (7, kind, state)


@pytest.mark.parametrize(
    "name",
    [
        "notes.log",
        "7.log",
        f"{7:021d}.log",
        f"{7:020d}.log.bak",
        f"{7:020d}.deleted",
        f"{7:020d}.log.deleted.old",
        f"{7:020d}-{1:010d}.checkpoint.deleted",
        f"{7:020d}.index.tmp",
        "leader-epoch-checkpoint",
        "my.snapshot",
        "photos.swap",
        "draft.cleaned",
    ],
)
def test_parse_segment_file_with_foreign_name_returns_none(name: str) -> None:
    assert parse_segment_file(name) is None


def test_is_temporary_file_accepts_names_written_before_a_rename_only() -> None:
    ours = [f"{7:020d}.index.tmp", f"{7:020d}.snapshot.tmp", f"{7:020d}.timeindex.cleaned.tmp", "quorum-state.tmp"]
    assert all(is_temporary_file(name) for name in [*ours, "leader-epoch-checkpoint.tmp", "partition.metadata.tmp"])
    assert not any(is_temporary_file(name) for name in ("thesis.tmp", "7.index.tmp", ".tmp", f"{7:020d}.index"))


def test_is_unfinished_snapshot_accepts_kafka_and_own_temporary_names_only() -> None:
    stem = f"{7:020d}-{1:010d}"
    assert is_unfinished_snapshot(f"{stem}.checkpoint.part")
    assert is_unfinished_snapshot(f"{stem}-5577006791947779410.checkpoint.part")
    assert is_unfinished_snapshot(f"{stem}.checkpoint.deleted")
    assert not is_unfinished_snapshot(f"{stem}.checkpoint")
    assert not is_unfinished_snapshot("backup.checkpoint.deleted")
    assert not is_unfinished_snapshot("download.checkpoint.part")
