"""The checksum: that it is the right one, and how little is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder

import pytest
from crc32c import crc32c as of_the_package

from ottla.wire.record_batch import crc

CHECK = b"123456789"
CHECKED = 0xE3069283
"""RFC 3720, appendix B.4, has others; this one is what catalogues of checksums test by."""


def test_it_is_crc_32c_and_goes_on_from_a_checksum() -> None:
    assert crc.crc32c(CHECK) == CHECKED == of_the_package(CHECK)
    assert crc.crc32c(CHECK[4:], crc.crc32c(CHECK[:4])) == CHECKED


def test_it_loads_nothing_but_the_c_function() -> None:
    seen = "import sys; from ottla.wire.record_batch.crc import crc32c; print(crc32c(b'1'), *sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True).stdout.split()
    assert loaded[0] == str(of_the_package(b"1"))
    assert not {"crc32c", "crc32c._cli", "importlib.metadata", "email"} & set(loaded)


@pytest.mark.parametrize("missing", [crc.PACKAGE, crc.EXTENSION])
def test_where_it_is_not_found_the_package_is_imported(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PathFinder.find_spec

    def find_spec(name: str, path: object = None) -> ModuleSpec | None:
        return None if name == missing else real(name, path)  # type: ignore[arg-type]

    monkeypatch.setattr(crc.PathFinder, "find_spec", find_spec)
    assert crc._load() is of_the_package
