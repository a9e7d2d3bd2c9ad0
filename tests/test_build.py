"""The build: a tree whose links are plain files is refused, and the source distribution has no tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_build_where_links_are_plain_files_fails_with_one_line(tmp_path: Path) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "ottla").mkdir()
    for name in ("log", "controller", "broker"):
        (tmp_path / "ottla" / name).mkdir()
        (tmp_path / "ottla" / name / "__init__.py").touch()
    (tmp_path / "ottla" / "wire").write_text("../wire")
    done = subprocess.run([sys.executable, "setup.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "not symbolic links to packages: ottla/wire -> ../wire (clone with core.symlinks=true, or make the links)"
    ]


def test_core_packages_are_links_of_ottla() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "ottla").iterdir() if path.is_symlink()}
    assert links == {name: Path("..") / name for name in ("wire", "log", "controller", "broker")}
