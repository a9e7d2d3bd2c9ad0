"""Module cache: modules imported after the start without file descriptors, from the code of the start."""

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
def cache(tmp_path: Path) -> Iterator[ModuleCache]:
    """Module cache of a package of four modules and a test."""
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
    """Replace the code of every file, and remove the bytecode."""
    for path in (tmp_path / "kept_sample").rglob("*.py*"):
        path.write_text("raise SystemError('new code')\n") if path.suffix == ".py" else path.unlink()


def test_import_cached_module_after_upgrade_runs_original_code(cache: ModuleCache, tmp_path: Path) -> None:
    early = importlib.import_module("kept_sample.inner.early")
    assert sum(1 for _ in cache.fill_job()) == len(cache) == 2
    upgrade(tmp_path)
    for name in ("compiled", "source"):
        module = importlib.import_module(f"kept_sample.inner.{name}")
        assert f"old {name}" == module.VALUE
        assert module.__file__ == str(tmp_path / "kept_sample" / "inner" / f"{name}.py")
        assert module.__package__ == "kept_sample.inner"
    assert len(cache) == 0
    assert sum(1 for _ in cache.fill_job()) == 0
    assert early.VALUE == "old early"


def test_import_cached_package_and_modules(cache: ModuleCache, tmp_path: Path) -> None:
    list(cache.fill_job())
    upgrade(tmp_path)
    assert importlib.import_module("kept_sample.inner.source").VALUE == "old source"
    assert sys.modules["kept_sample.inner"].__path__ == [str(tmp_path / "kept_sample" / "inner")]
    with pytest.raises(SystemError, match="new code"):
        importlib.import_module("kept_sample.inner.tests")


def test_module_cache_ignores_stale_bytecode(cache: ModuleCache, tmp_path: Path) -> None:
    (tmp_path / "kept_sample" / "inner" / "compiled.py").write_text("VALUE = 'a newer source'\n")
    list(cache.fill_job())
    upgrade(tmp_path)
    assert importlib.import_module("kept_sample.inner.compiled").VALUE == "a newer source"


def test_cache_modules_continues_after_shortage_of_descriptors(
    monkeypatch: pytest.MonkeyPatch, cache: ModuleCache
) -> None:
    read, short = module_cache._read, [OSError(errno.EMFILE, "short")] * 2

    def fails_first(*arguments: object, **named: object) -> object:
        if len(cache) == 2 and short:
            raise short.pop()
        return read(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module_cache, "_read", fails_first)
    monkeypatch.setattr(module_cache, "MODULE_CACHE", cache)
    trio.run(cache_modules, clock=trio.testing.MockClock(autojump_threshold=0))
    assert not short
    assert len(cache) == 5


def test_cache_modules_gives_up_without_memfd(monkeypatch: pytest.MonkeyPatch, cache: ModuleCache) -> None:
    attempts = []

    def fails(*arguments: object, **named: object) -> object:
        attempts.append(arguments)
        raise OSError(errno.ENOSYS, "no memfd_create")

    monkeypatch.setattr(module_cache, "_MemoryFile", fails)
    monkeypatch.setattr(module_cache, "MODULE_CACHE", cache)
    trio.run(cache_modules, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(attempts) == 1


def test_fill_in_several_threads_keeps_modules_intact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process with several nodes has one cache for the modules of all."""
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
