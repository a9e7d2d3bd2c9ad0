"""Build: a tree with plain files in place of links is refused; distributions are reproducible, install and serve."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from devtools.dist import rewrite_archive
from ottla import __version__

ROOT = Path(__file__).parent.parent


def test_build_with_plain_files_as_links_fails_with_one_line(tmp_path: Path) -> None:
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


def test_version_of_the_distribution_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_rewritten_archive_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    def archive(name: str, order: tuple[str, ...], mtime: int, mode: int) -> bytes:
        with tarfile.open(tmp_path / name, "w:gz") as out:
            for path in order:
                member = tarfile.TarInfo(path)
                member.size, member.mtime, member.mode, member.uid, member.uname = 1, mtime, mode, mtime, name
                out.addfile(member, io.BytesIO(b"x"))
        rewrite_archive(tmp_path / name, tmp_path / f"{name}.out", 1_700_000_000)
        return (tmp_path / f"{name}.out").read_bytes()

    first = archive("one", ("p/a", "p/b"), 5, 0o600)
    assert archive("two", ("p/b", "p/a"), 6, 0o664) == first
    assert archive("three", ("p/b", "p/c"), 6, 0o664) != first


def test_distributions_are_equal_install_into_an_empty_environment_and_serve(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("distributions are made of a commit")
    command = [sys.executable, "-m", "devtools.dist", "--check", "--within", "900", "--out", str(tmp_path)]
    environment = {**os.environ, "PIP_RETRIES": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if "the build backend cannot be installed" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a second build is equal" in done.stdout
    (wheel,) = tmp_path.glob("*.whl")
    (site,) = tmp_path.glob("*-docs.tar.gz")
    (source,) = set(tmp_path.glob("*.tar.gz")) - {site}
    with tarfile.open(site) as archived:
        folder = site.name.removesuffix(".tar.gz")
        assert {f"{folder}/README.html", f"{folder}/reference/apis.html"} <= set(archived.getnames())
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {"ottla/wire/__init__.py", "ottla/cli/commands/container.py", "ottla/py.typed"} <= names
    assert {"compat_tests/__main__.py", "compat_tests/clients/go/go.mod", "compat_tests/ivy.xml"} <= names
    assert {"ottla/spark/__init__.py", "ottla/spark/ottla-log.jar"} <= names
    with tarfile.open(source) as archived:
        names |= set(archived.getnames())
    assert not [name for name in names if "/tests/" in name or "/test_" in name]
