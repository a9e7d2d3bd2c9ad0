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
"""Strings that are interned beforehand, so that Python's table of them does not grow in a measurement."""


def main() -> None:
    """Read a plan (JSON) from standard input, measure its imports, and print a list of (ms, bytes), one for each case.

    ``base``: modules that are imported first, in this process. ``cases``: pairs of an importing module and its target
    modules, which are imported in this order in a fork; only the targets are measured. The time is processor time, the
    least of `ROUNDS` forks; the memory is what `tracemalloc` counts after a collection.
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
    """Import modules in a fork of this process, and return the cost.

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
    """Import `importer`, then `targets`, in this process.

    Returns:
        Processor time in seconds of the imports of `targets`, or with `is_traced` the memory that they keep, in bytes.
    """
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
