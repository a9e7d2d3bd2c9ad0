"""What a large request may become in memory: counts and lengths are paid for before anything is made of them.

A count in a request is a few bytes, what it announces may be hundreds. So that no request costs more than a small
multiple of what was sent for it, each element is charged an estimate of its size as an object.

Sources: CVE-2026-111108 and CVE-2026-111115 (arrays and tagged fields that amplify).
"""

from __future__ import annotations

from ottla.wire.errors import WireError
from ottla.wire.schema import Message, fields_of

FREE_ELEMENTS = 200_000
"""So many elements are always allowed: honest requests of large clusters have them."""
FREE_BYTES = 16 * 1024 * 1024
PER_REQUEST_BYTE = 2

POINTER_BYTES = 9
"""An element's place in a list, with what lists keep in reserve."""
NUMBER_BYTES = 32
LIST_BYTES = 64
VIEW_BYTES = 192
_OBJECT_BYTES = 16


class Budget:
    """What is left to be spent on one request."""

    __slots__ = ("bytes_left", "free_elements")

    def __init__(self, request_bytes: int) -> None:
        self.free_elements = FREE_ELEMENTS
        self.bytes_left = FREE_BYTES + PER_REQUEST_BYTE * request_bytes

    def take(self, count: int, each_bytes: int) -> None:
        """Pay for ``count`` elements of an array, before the first of them is made.

        Raises:
            WireError: they are too many.
        """
        paid = count - self.free_elements
        self.free_elements = max(-paid, 0)
        if paid > 0:
            self.spend(paid * each_bytes)

    def spend(self, size_bytes: int) -> None:
        """Pay for one object.

        Raises:
            WireError: it is too much.
        """
        self.bytes_left -= size_bytes
        if self.bytes_left < 0:
            raise WireError("a request that would take far more memory than it has bytes")


def cost_bytes(cls: type[Message], version: int) -> int:
    """About what an instance takes in memory, without its texts and the elements of its arrays."""
    fields = fields_of(cls)
    total = _OBJECT_BYTES + 8 * len(fields)
    for spec in fields:
        if spec.is_array:
            total += LIST_BYTES
        elif spec.kind == "struct":
            assert spec.struct is not None
            total += cost_bytes(spec.struct, version)
        elif version in spec.versions and spec.kind not in ("bool", "int8", "string", "bytes", "records"):
            total += NUMBER_BYTES
    return total
