"""Stored security setup of a node: damaged files, and how files are replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.tools import security_setup
from ottla.tools.security_setup import SecuritySetupFailed

STATE = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "password": "p", "trusted": ""}


@pytest.mark.parametrize("text", ["", "[]", "{}", "{bad", "[" * 10_000, json.dumps(STATE | {"password": 1})])
def test_damaged_security_setup_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / security_setup.STATE_FILE).write_text(text)
    with pytest.raises(SecuritySetupFailed, match=f"^{tmp_path}/secure.json is damaged: a JSON object"):
        security_setup.has_copied_credentials(str(tmp_path))
    with pytest.raises(SecuritySetupFailed, match=f"^{tmp_path}/secure.json is damaged: a JSON object"):
        security_setup.ensure_security_setup(str(tmp_path), ())
    assert (tmp_path / security_setup.STATE_FILE).read_text() == text


def test_file_of_a_security_setup_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    security_setup._write(path, "old")
    assert path.stat().st_mode & 0o777 == 0o600

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        security_setup._write(path, "new")
    assert path.read_text() == "old"
    monkeypatch.undo()
    security_setup._write(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["f"]
    assert path.read_text() == "new"
