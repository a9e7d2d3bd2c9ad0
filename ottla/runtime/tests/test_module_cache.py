"""Modules that are kept from the start on: imported without descriptors, and as they were."""

from __future__ import annotations

import errno
import importlib
import os
import py_compile
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.runtime import module_cache
from ottla.runtime.module_cache import ModuleCache, cache_modules


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ModuleCache]:
    """Of a package of four modules and a test."""
    inner = tmp_path / "kept_sample" / "inner"
    (inner / "tests").mkdir(parents=True)
    for path in (inner.parent, inner, inner / "tests"):
        (path / "__init__.py").write_text("")
    (inner / "tests" / "test_x.py").write_text("")
    for name in ("early", "compiled", "source"):
        (inner / f"{name}.py").write_text(f"VALUE = 'old {name}'\n\ndef fail():\n    raise ValueError\n")
    py_compile.compile(str(inner / "compiled.py"), doraise=True)
    sys.path.insert(0, str(tmp_path))
    made = ModuleCache(str(tmp_path), ["kept_sample"])
    yield made
    sys.path.remove(str(tmp_path))
    if made in sys.meta_path:
        sys.meta_path.remove(made)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kept_sample"]:
        del sys.modules[name]


def upgrade(tmp_path: Path) -> None:
    """Put other code into every file, and remove the bytecode."""
    for path in (tmp_path / "kept_sample").rglob("*.py*"):
        path.write_text("raise SystemError('new code')\n") if path.suffix == ".py" else path.unlink()


def test_import_of_kept_modules_after_an_upgrade_runs_the_code_of_the_start(kept: ModuleCache, tmp_path: Path) -> None:
    early = importlib.import_module("kept_sample.inner.early")
    assert sum(1 for _ in kept.fill_job()) == len(kept) == 2
    upgrade(tmp_path)
    for name in ("compiled", "source"):
        module = importlib.import_module(f"kept_sample.inner.{name}")
        assert f"old {name}" == module.VALUE
        assert module.__file__ == str(tmp_path / "kept_sample" / "inner" / f"{name}.py")
        assert module.__package__ == "kept_sample.inner"
    assert len(kept) == 0
    assert sum(1 for _ in kept.fill_job()) == 0
    assert early.VALUE == "old early"


def test_import_of_kept_packages_and_their_modules_works(kept: ModuleCache, tmp_path: Path) -> None:
    list(kept.fill_job())
    upgrade(tmp_path)
    assert importlib.import_module("kept_sample.inner.source").VALUE == "old source"
    assert sys.modules["kept_sample.inner"].__path__ == [str(tmp_path / "kept_sample" / "inner")]
    with pytest.raises(SystemError, match="new code"):
        importlib.import_module("kept_sample.inner.tests")


def test_stale_bytecode_is_not_kept(kept: ModuleCache, tmp_path: Path) -> None:
    (tmp_path / "kept_sample" / "inner" / "compiled.py").write_text("VALUE = 'a newer source'\n")
    list(kept.fill_job())
    upgrade(tmp_path)
    assert importlib.import_module("kept_sample.inner.compiled").VALUE == "a newer source"


def test_keep_modules_short_of_descriptors_goes_on_later(monkeypatch: pytest.MonkeyPatch, kept: ModuleCache) -> None:
    read, short = module_cache._read, [OSError(errno.EMFILE, "short")] * 2

    def fails_first(*arguments: object, **named: object) -> object:
        if len(kept) == 2 and short:
            raise short.pop()
        return read(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module_cache, "_read", fails_first)
    monkeypatch.setattr(module_cache, "MODULE_CACHE", kept)
    trio.run(cache_modules, clock=trio.testing.MockClock(autojump_threshold=0))
    assert not short
    assert len(kept) == 5


def test_keep_modules_where_they_cannot_be_kept_gives_up(monkeypatch: pytest.MonkeyPatch, kept: ModuleCache) -> None:
    attempts = []

    def fails(*arguments: object, **named: object) -> object:
        attempts.append(arguments)
        raise OSError(errno.ENOSYS, "no memfd_create")

    monkeypatch.setattr(module_cache, "_MemoryFile", fails)
    monkeypatch.setattr(module_cache, "MODULE_CACHE", kept)
    trio.run(cache_modules, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(attempts) == 1


def test_keep_in_several_threads_keeps_each_module_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that starts several nodes at the same time keeps the modules of all of them in one store."""
    package, pwrite, started = tmp_path / "kept_twice", os.pwrite, threading.Barrier(4)
    package.mkdir()
    for number in range(50):
        (package / f"m{number}.py").write_text(f"VALUE = {number}\n" * (number % 7 + 1))

    twice = ModuleCache(str(tmp_path), ["kept_twice"])

    def lets_others_run(*arguments: Any) -> int:
        written = pwrite(*arguments)
        time.sleep(0)
        return written

    def keep() -> None:
        started.wait()
        list(twice.fill_job())

    monkeypatch.setattr(os, "pwrite", lets_others_run)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(twice) == 50
    assert all(number in twice.get_code(f"kept_twice.m{number}").co_consts for number in range(50))
