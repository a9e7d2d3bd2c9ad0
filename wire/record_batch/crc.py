"""CRC-32C by the C extension of the ``crc32c`` package, imported without the package's ``__init__``.

The ``__init__`` looks up its own version with ``importlib.metadata``, which imports modules of 1.8 MB in 20 ms. The
extension is imported directly, or through the package if it is not found.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

PACKAGE, EXTENSION = "crc32c", "_crc32c"


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec(PACKAGE)
    inside = None if package is None else package.submodule_search_locations
    found = None if inside is None else PathFinder.find_spec(EXTENSION, inside)
    if found is None or found.loader is None:
        # lazy: 19.6 ms, 1496 kB: where the package has no extension module
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c: Callable[..., int] = _load()
"""CRC-32C function ``crc32c(data, value=0)``; ``value``: the checksum of the preceding bytes."""
