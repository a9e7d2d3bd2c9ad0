"""Memory budget for decoding a message: array elements are charged before they are allocated, strings directly after.

An array element may be a few bytes in a request and hundreds as an object. So that no request takes more memory than a
fixed amount and a small multiple of its size, each element is charged an estimate of its size as an object.

Sources: CVE-2026-111108 and CVE-2026-111115 (arrays and tagged fields that amplify).
"""

from __future__ import annotations

from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.errors import WireError
from ottla.wire.limits import (
    BUDGET_EARLY_BYTES,
    BUDGET_FREE_BYTES,
    BUDGET_FREE_RETAINED_BYTES,
    BUDGET_PER_EARLY_BYTE,
    BUDGET_PER_REQUEST_BYTE,
)

SHORT_STRING_BYTES = 64
"""Length below which a string is charged as an array element: most of its memory is the object header."""

POINTER_BYTES = 9
"""Memory of a list entry, including the list's over-allocation."""
NUMBER_BYTES = 32
LIST_BYTES = 64
VIEW_BYTES = 192
_OBJECT_BYTES = 16
_FREE_KINDS = ("bool", "int8", "string", "bytes", "records")
"""Types that allocate no object (Python caches small integers), or are charged by their length."""


class DecodeBudget:
    """Remaining memory budget of a request; ``request_bytes`` is the size of the request."""

    __slots__ = ("keeps", "remaining_bytes", "remaining_early_bytes")

    def __init__(self, request_bytes: int, *, keeps: bool = False) -> None:
        self.keeps = keeps
        """True if the decoded elements are stored, so that no array may be a `LazyArray`."""
        self.remaining_bytes = (
            BUDGET_FREE_RETAINED_BYTES if keeps else BUDGET_FREE_BYTES
        ) + BUDGET_PER_REQUEST_BYTE * request_bytes
        self.remaining_early_bytes = 0 if keeps else BUDGET_PER_EARLY_BYTE * min(request_bytes, BUDGET_EARLY_BYTES)
        """Additional budget for array elements; long strings are not much larger in memory than in the request."""

    def charge_elements(self, size_bytes: int) -> None:
        """Charge ``size_bytes`` for elements of an array before they are allocated, or for a short string.

        The additional budget for elements is used first.

        Raises:
            WireError: the budget is exceeded.
        """
        self.remaining_early_bytes -= size_bytes
        if self.remaining_early_bytes < 0:
            over, self.remaining_early_bytes = -self.remaining_early_bytes, 0
            self.charge(over)

    def charge(self, size_bytes: int) -> None:
        """Charge ``size_bytes`` of memory.

        Raises:
            WireError: the budget is exceeded.
        """
        self.remaining_bytes -= size_bytes
        if self.remaining_bytes < 0:
            raise WireError("decoded, it would take far more memory than it has bytes")


def estimate_instance_bytes(cls: type[Message], version: int) -> int:
    """Return the estimated memory of an instance in bytes, without strings, tagged numbers and array elements."""
    fields = fields_of(cls)
    total = _OBJECT_BYTES + 8 * len(fields)
    for spec in fields:
        if spec.is_array:
            total += LIST_BYTES
        elif spec.kind == "struct":
            assert spec.struct is not None
            total += estimate_instance_bytes(spec.struct, version)
        elif version in spec.versions and version not in spec.tagged and spec.kind not in _FREE_KINDS:
            total += NUMBER_BYTES
    return total
