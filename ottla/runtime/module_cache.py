"""In-memory cache of the code of modules that a running node may still import.

Most modules are imported when they are first needed: a node starts in a quarter of a second, and idles in 34 MB instead
of 47 MB. But an import opens files: it fails when descriptors are used up, and after an upgrade of the package it loads
new code into an old process. So the bytecode of the modules of `PACKAGES` that are not imported yet is read directly
after the start and stored compressed, and later imports use it.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import marshal
import os
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import NamedTuple

import trio

from ottla.env.disk import is_transient

logger = logging.getLogger("ottla.modules")

PACKAGES = (
    *("ottla.wire", "ottla.env", "ottla.jobs", "ottla.log"),
    *("ottla.client", "ottla.controller", "ottla.broker", "ottla.runtime"),
)
"""Packages of a node, whose modules are cached."""
_PYC_HEADER_BYTES = 16
RETRY_S = 1.0
ATTEMPTS = 3600
_LEVEL = 1
"""zlib compression level: the fastest; it reduces bytecode to a third."""


class CachedModule(NamedTuple):
    """Module in the cache that is not imported yet."""

    path: str
    """Path of the module's source file."""
    location: tuple[int, int]
    """Offset and size in bytes of the compressed code in the `_MemoryFile`."""
    is_bytecode: bool
    """True if the stored code is bytecode; False if it is source, since no valid bytecode existed."""
    is_package: bool


class _MemoryFile:
    """Anonymous file in memory (``memfd_create``), which does not count as resident memory of the process."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("ottla-modules", os.MFD_CLOEXEC)
        self._end = 0

    def add(self, raw: bytes) -> tuple[int, int]:
        """Append bytes; return their offset and size."""
        place = self._end, os.pwrite(self._fd, raw, self._end)
        self._end += len(raw)
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        """Return the bytes at the offset and size that `add` returned."""
        return os.pread(self._fd, place[1], place[0])


class ModuleCache:
    """Importer of cached modules (``importlib.abc.MetaPathFinder`` and ``Loader``)."""

    def __init__(self, root: str, packages: Iterable[str]) -> None:
        """Create an importer for ``packages``; the directory of ``ottla.x`` is ``root``/x."""
        self._root = root
        self._packages = tuple(packages)
        self._cached: dict[str, CachedModule] = {}
        self._store: _MemoryFile | None = None
        self._guard = threading.Lock()
        """Lock against nodes that start in several threads at the same time."""

    def __len__(self) -> int:
        return len(self._cached)

    def fill_job(self) -> Iterator[None]:
        """Install the importer, and add its packages' modules that are not imported yet; yields after each module.

        Raises:
            OSError: a file cannot be read, or memory is short; the next call continues with this module.
        """
        with self._guard:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            store = self._store = self._store or _MemoryFile()
        for package in self._packages:
            directory = os.path.join(self._root, package.rpartition(".")[2])
            for path, name, is_package in _modules(directory, package):
                with self._guard:
                    if name in sys.modules or name in self._cached:
                        continue
                    self._cached[name] = _read(store, path, is_package=is_package)
                yield

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the import spec of a cached module, for Python's import; None if the module is not in the cache."""
        kept = self._cached.get(name)
        if kept is None:
            return None
        places = [os.path.dirname(kept.path)] if kept.is_package else None
        return importlib.util.spec_from_file_location(name, kept.path, loader=self, submodule_search_locations=places)

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python creates the module object."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the cached code in ``module`` and remove it from the cache."""
        name = module.__name__
        exec(self.get_code(name), module.__dict__)  # noqa: S102 - what import does
        self._cached.pop(name, None)

    def load_module(self, name: str) -> ModuleType:
        """Import a module by name; for the loader interface before Python 3.4."""
        return importlib.import_module(name)

    def get_code(self, name: str) -> CodeType:
        """Return the code object of a cached module from the cache; it stays cached. KeyError for another module."""
        kept = self._cached[name]
        assert self._store is not None
        raw = zlib.decompress(self._store.read(kept.location))
        if kept.is_bytecode:
            code: CodeType = marshal.loads(raw)  # noqa: S302 - of Python's own cache, as import reads it
            return code
        return compile(raw, kept.path, "exec", dont_inherit=True)


def _modules(directory: str, package: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (path, module name, is_package) of every module below ``directory``, without tests."""
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name == "__init__.py":
            yield path, package, True
        elif name.endswith(".py"):
            yield path, f"{package}.{name[:-3]}", False
        elif name != "tests" and os.path.exists(os.path.join(path, "__init__.py")):
            yield from _modules(path, f"{package}.{name}")


def _read(store: _MemoryFile, path: str, *, is_package: bool) -> CachedModule:
    """Copy a module's bytecode, or its source if there is no valid bytecode, to ``store``; return its cache entry.

    ``path``: source file of the module.

    Raises:
        OSError: the source file cannot be read, or memory is short.
    """
    cached = importlib.util.cache_from_source(path)
    stat = os.stat(path)
    try:
        with open(cached, "rb") as file:
            raw = file.read()
    except OSError:
        raw = b""
    valid = importlib.util.MAGIC_NUMBER + bytes(4) + int(stat.st_mtime).to_bytes(8, "little")[:4]
    valid += (stat.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    is_valid = raw[:_PYC_HEADER_BYTES] == valid
    if not is_valid:
        with open(path, "rb") as file:
            raw = bytes(_PYC_HEADER_BYTES) + file.read()
    place = store.add(zlib.compress(raw[_PYC_HEADER_BYTES:], _LEVEL))
    return CachedModule(path, place, is_bytecode=is_valid, is_package=is_package)


MODULE_CACHE = ModuleCache(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), PACKAGES)
"""Module cache of this process."""


async def cache_modules() -> None:
    """Fill the module cache of this process after a node's start, and yield to other tasks after each module.

    While descriptors or memory are short it is tried again every `RETRY_S`, up to `ATTEMPTS` times. Other errors are
    logged and leave the cache as it is: imports then read files.
    """
    for _ in range(ATTEMPTS):
        try:
            for _ in MODULE_CACHE.fill_job():
                await trio.lowlevel.checkpoint()
        except OSError as error:
            if not is_transient(error):  # such as no memfd_create, or modules in an archive
                logger.warning("Module cache disabled, later imports read files: %s", error)
                return
            logger.warning("Module cache not available yet, retrying: %s", error)
            await trio.sleep(RETRY_S)
        except Exception:
            logger.exception("Module cache disabled, later imports read files")
            return
        else:
            return
