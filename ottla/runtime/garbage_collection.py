"""Memory of a node: full garbage collections are rare, or triggered by memory growth; release of free heap memory.

A node creates no reference cycles (tests verify this). Other libraries may: without the trigger their garbage would
remain for `FULL_COLLECTION_AFTER` collections of the younger generations, however large it is.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from contextlib import suppress

from ottla.env.env import Env

logger = logging.getLogger("ottla.server")
FULL_COLLECTION_AFTER = 1000
"""Collections of generation 1 between two full collections (Python's default: 10): about 7 million new containers.

A full collection pauses the event loop for the time it takes to visit all containers: 20 ms and more with a request of
100,000 elements, or the metadata of 10,000 partitions.
"""
CHECK_EVERY_S = 60.0
MEMORY_GROWTH_BYTES = 128 * 1024 * 1024
"""Growth of the resident memory, above its minimum since the last triggered collection, that triggers the next one."""


def freeze_garbage_collector() -> None:
    """Exempt all present objects of the process from garbage collection, and make full collections rare.

    ``ottla serve`` calls it when the node has started, and again each time that many logs were created.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_AFTER)


def release_free_memory() -> None:
    """Return the free memory of the C heap to the system with glibc's ``malloc_trim``, if the library is glibc.

    Importing the modules of a node leaves about half a megabyte free between objects. Takes about 1 ms.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def collect_as_memory_grows(env: Env) -> None:
    """Run a full collection when the resident memory has grown by `MEMORY_GROWTH_BYTES`; runs until cancelled.

    Checked every `CHECK_EVERY_S`, against the smallest value since the last full collection that was run here.
    """
    least_bytes: int | None = None
    while True:
        await env.sleep(CHECK_EVERY_S)
        resident_bytes = env.process_stats().resident_bytes
        if least_bytes is not None and resident_bytes - least_bytes >= MEMORY_GROWTH_BYTES:
            found = gc.collect()
            logger.debug("Full garbage collection at %d MiB: %d objects", resident_bytes >> 20, found)
            least_bytes = env.process_stats().resident_bytes
        else:
            least_bytes = resident_bytes if least_bytes is None else min(least_bytes, resident_bytes)
