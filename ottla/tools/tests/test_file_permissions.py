"""Files with credentials: created private, and reported by ``ottla doctor`` if they are not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ottla.cli.commands import doctor
from ottla.cli.commands.format import run as format_run
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.storage_formatter import BOOTSTRAP_FILE
from ottla.log.directory.log_directory import LogDirectory
from ottla.runtime.real_disk import RealDisk, open_private
from ottla.tools.security_setup import ensure_security_setup, write_client_files

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


@pytest.fixture(autouse=True)
def _usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def formatted(where: Path) -> Path:
    """Return a formatted directory with a metadata log."""
    data = where / "data"
    scram = "SCRAM-SHA-512=[name=admin,password=geheim]"
    assert format_run(["-t", CLUSTER, "--data-dir", str(data), "--standalone", "--add-scram", scram]) == 0
    identity = LogDirectory(RealDisk(), str(data)).read_meta_properties()
    assert identity is not None
    store = MetadataStore(RealDisk(), str(data), identity, 0)
    store.log.roll(0) if store.log.log_end_offset else None
    store.close()
    return data


def test_format_creates_private_files_and_directories(tmp_path: Path) -> None:
    data = formatted(tmp_path)
    metadata = data / "__cluster_metadata-0"
    assert [mode(path) for path in (data, metadata)] == [0o700, 0o700]
    assert mode(data / BOOTSTRAP_FILE) == 0o600
    assert [path.name for path in metadata.iterdir() if mode(path) & 0o077] == []
    assert list(metadata.glob("*.log"))
    assert list(metadata.glob("*.checkpoint"))


def test_write_client_files_creates_private_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = ensure_security_setup(str(data), (), tls=False)
    write_client_files(made, str(data), "127.0.0.1:9092")
    assert mode(data) == 0o700
    assert {mode(path) for path in data.iterdir()} == {0o600}


def test_open_private_restricts_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("an older and longer text")
    path.chmod(0o644)
    with open(open_private(str(path)), "w", encoding="utf-8") as file:
        file.write("new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)


def test_doctor_reports_readable_files_with_credentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = formatted(tmp_path)
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={data}\n")
    assert doctor.run([str(settings)]) == 0
    assert doctor.run([str(data)]) == 0
    assert "credentials" not in capsys.readouterr().out
    wide = [data / BOOTSTRAP_FILE, data / "__cluster_metadata-0", next((data / "__cluster_metadata-0").glob("*.log"))]
    for path in wide:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for checked_path in (settings, data):
        assert doctor.run([str(checked_path)]) == 0
        output = capsys.readouterr().out
        assert output.count("credentials may be read by other users") == 3
        assert all(str(path) in output for path in wide)


def test_doctor_reports_readable_settings_file_with_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, keys = tmp_path / "server.properties", tmp_path / "keys.pem"
    keys.write_text("")
    settings.write_text(f"\nssl.keystore.password=geheim\nssl.keystore.location={keys}\n")
    for path in (settings, keys):
        path.chmod(0o640)
    doctor.run([str(settings)])
    output = capsys.readouterr().out
    assert (
        f"{settings}:2: doubtful: ssl.keystore.password: credentials may be read by other users: {settings}" in output
    )
    assert f"ssl.keystore.location: credentials may be read by other users: {keys} (mode 0640)" in output
    for path in (settings, keys):
        path.chmod(0o600)
    doctor.run([str(settings)])
    assert "credentials" not in capsys.readouterr().out
