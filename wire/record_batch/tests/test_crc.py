"""CRC-32C: its value, and the modules imported for it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder

import pytest
from crc32c import crc32c as of_the_package

from ottla.wire.record_batch import crc

CHECK = b"123456789"
CHECKED = 0xE3069283
"""Check value of CRC-32C in catalogues of checksums; RFC 3720, appendix B.4, has other values."""


def test_crc32c_equals_check_value_and_continues_from_a_checksum() -> None:
    assert crc.crc32c(CHECK) == CHECKED == of_the_package(CHECK)
    assert crc.crc32c(CHECK[4:], crc.crc32c(CHECK[:4])) == CHECKED


def test_crc_import_loads_only_the_c_extension() -> None:
    seen = "import sys; from ottla.wire.record_batch.crc import crc32c; print(crc32c(b'1'), *sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True).stdout.split()
    assert loaded[0] == str(of_the_package(b"1"))
    assert not {"crc32c", "crc32c._cli", "importlib.metadata", "email"} & set(loaded)


@pytest.mark.parametrize("missing", [crc.PACKAGE, crc.EXTENSION])
def test_crc_load_without_extension_imports_the_package(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PathFinder.find_spec

    def find_spec(name: str, path: object = None) -> ModuleSpec | None:
        return None if name == missing else real(name, path)  # type: ignore[arg-type]

    monkeypatch.setattr(crc.PathFinder, "find_spec", find_spec)
    assert crc._load() is of_the_package
