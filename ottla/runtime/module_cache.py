"""Code of the modules that a running node may still import, kept in memory from its start on.

Most modules are imported when they are first needed: a node starts in a quarter of a second, and idles in 34 MB instead
of 47 MB. But an import opens files: it fails when descriptors are used up, and when the package was upgraded meanwhile
it brings new code into an old process. So the bytecode of all modules is read directly after the start, compressed, and
every later import of them takes it from there.
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
"""The packages that a node consists of."""
_PYC_HEADER_BYTES = 16
RETRY_S = 1.0
ATTEMPTS = 3600
_LEVEL = 1
"""Of compression: it is to be quick, and each byte of bytecode becomes a third of one."""


class CachedModule(NamedTuple):
    """A module's code."""

    path: str
    """Of its source."""
    location: tuple[int, int]
    """Offset and size of the compressed code in the store."""
    is_bytecode: bool
    """False: no valid bytecode was there, and this is the source."""
    is_package: bool


class _MemoryFile:
    """Bytes in a file without a name, which is memory of the system and none of the process's own."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("ottla-modules", os.MFD_CLOEXEC)
        self._end = 0

    def add(self, raw: bytes) -> tuple[int, int]:
        """Append bytes; return where they are."""
        place = self._end, os.pwrite(self._fd, raw, self._end)
        self._end += len(raw)
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        """Return the bytes at a place that `add` returned."""
        return os.pread(self._fd, place[1], place[0])


class ModuleCache:
    """An importer of modules that are kept (``importlib.abc.MetaPathFinder`` and ``Loader``)."""

    def __init__(self, root: str, packages: Iterable[str]) -> None:
        """Create an importer for ``packages``, whose directories are in ``root`` under the last part of their names."""
        self._root = root
        self._packages = tuple(packages)
        self._cached: dict[str, CachedModule] = {}
        self._store: _MemoryFile | None = None
        self._guard = threading.Lock()
        """A program may start nodes in several threads at the same time."""

    def __len__(self) -> int:
        return len(self._cached)

    def fill_job(self) -> Iterator[None]:
        """Read all modules that are not imported yet, one in a step, and import them from here from then on.

        Raises:
            OSError: one cannot be read; called again, it goes on with that one.
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
        """Return the spec of a module that is kept."""
        kept = self._cached.get(name)
        if kept is None:
            return None
        places = [os.path.dirname(kept.path)] if kept.is_package else None
        return importlib.util.spec_from_file_location(name, kept.path, loader=self, submodule_search_locations=places)

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave making the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code in it; it is not kept any longer."""
        name = module.__name__
        exec(self.get_code(name), module.__dict__)  # noqa: S102 - what import does
        self._cached.pop(name, None)

    def load_module(self, name: str) -> ModuleType:
        """Import a module, as loaders did before Python 3.4."""
        return importlib.import_module(name)

    def get_code(self, name: str) -> CodeType:
        """Return the code of a module that is kept."""
        kept = self._cached[name]
        assert self._store is not None
        raw = zlib.decompress(self._store.read(kept.location))
        if kept.is_bytecode:
            code: CodeType = marshal.loads(raw)  # noqa: S302 - of Python's own cache, as import reads it
            return code
        return compile(raw, kept.path, "exec", dont_inherit=True)


def _modules(directory: str, package: str) -> Iterator[tuple[str, str, bool]]:
    """Yield path, name and whether it is a package of every module beneath; tests are left out."""
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name == "__init__.py":
            yield path, package, True
        elif name.endswith(".py"):
            yield path, f"{package}.{name[:-3]}", False
        elif name != "tests" and os.path.exists(os.path.join(path, "__init__.py")):
            yield from _modules(path, f"{package}.{name}")


def _read(store: _MemoryFile, path: str, *, is_package: bool) -> CachedModule:
    """Read a module's bytecode, or its source where that has none that is valid."""
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
"""The modules of this process."""


async def cache_modules() -> None:
    """Keep the modules of a node that has just started; what cannot be read now is read a little later."""
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
