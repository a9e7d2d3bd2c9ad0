"""Cost of imports: processor time and memory, each measured in a process without the module.

Reads a plan from standard input, writes the costs to standard output; `devtools.lazy_imports` starts it. Only modules
that every process of Ottla imports are imported here, because those that are imported already are free.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
import tracemalloc
from contextlib import suppress
from importlib import import_module

ROUNDS = 5
INTERNED = 100_000
"""Strings that are interned beforehand, so that Python's table of them has room and does not grow in a measurement."""


def main() -> None:
    """Measure a plan: `base` is imported first, then in a fork for each case `importer`, then `targets`, measured.

    The time is processor time, the least of `ROUNDS` forks; the memory is what `tracemalloc` counts after a collection.
    """
    plan = json.load(sys.stdin)
    for name in plan["base"]:
        with suppress(ImportError):  # an optional library's attempt to import itself
            import_module(name)
    interned = [sys.intern(f"import cost {number}") for number in range(INTERNED)]
    out = []
    for importer, targets in plan["cases"]:
        run_fork(importer, targets, is_traced=False)  # writes the bytecode of modules that have none
        seconds = min(run_fork(importer, targets, is_traced=False) for _ in range(ROUNDS))
        out.append((seconds * 1000, run_fork(importer, targets, is_traced=True)))
    json.dump(out, sys.stdout)
    del interned


def run_fork(importer: str, targets: list[str], *, is_traced: bool) -> float:
    """Import in a fork of this process.

    Args:
        importer: module that is imported before the measurement.
        targets: modules that are imported in the measurement.
        is_traced: measure memory, which makes the import slower.

    Returns:
        Seconds of processor time, or bytes; NaN where an optional library is not installed.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            try:
                cost = measure(importer, targets, is_traced=is_traced)
            except ModuleNotFoundError as error:
                if str(error.name).startswith("ottla"):
                    raise
                cost = math.nan
            os.write(writing, repr(cost).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    assert text, f"{importer}: {targets} cannot be imported"
    return float(text)


def measure(importer: str, targets: list[str], *, is_traced: bool) -> float:
    """Import `targets` in this process; return seconds of processor time, or bytes."""
    import_module(importer)
    gc.collect()
    if is_traced:
        tracemalloc.start()
    began = time.process_time()
    for name in targets:
        import_module(name)
    seconds = time.process_time() - began
    if not is_traced:
        return seconds
    gc.collect()
    return float(tracemalloc.get_traced_memory()[0])


if __name__ == "__main__":
    main()
