"""Count of objects in reference cycles that work creates."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def count_cycles(counts: list[int]) -> Iterator[None]:
    """Append to ``counts`` the number of objects in reference cycles that became garbage inside the block.

    Work that happens once, such as the compilation of a codec or the end of a thread of an earlier test, is counted
    too: tests measure several blocks and judge the smallest count.
    """
    gc.collect()
    gc.disable()
    try:
        yield
        counts.append(gc.collect())
    finally:
        gc.enable()
