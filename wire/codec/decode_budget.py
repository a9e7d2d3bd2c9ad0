"""Memory budget for decoding a request: counts and lengths are charged before allocating.

A count in a request takes a few bytes, its elements may take hundreds each. So that no request costs more than a small
multiple of its size, each element is charged an estimate of its size as an object.

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
"""A text below that counts as an element: its head is most of it."""

POINTER_BYTES = 9
"""An element's place in a list, with what lists keep in reserve."""
NUMBER_BYTES = 32
LIST_BYTES = 64
VIEW_BYTES = 192
_OBJECT_BYTES = 16
_FREE_KINDS = ("bool", "int8", "string", "bytes", "records")
"""Types that allocate no object (Python caches small integers) or are charged by their size."""


class DecodeBudget:
    """Remaining memory budget of a request."""

    __slots__ = ("keeps", "remaining_bytes", "remaining_early_bytes")

    def __init__(self, request_bytes: int, *, keeps: bool = False) -> None:
        self.keeps = keeps
        """True if somebody keeps what is read, so that all of it must be objects."""
        self.remaining_bytes = (
            BUDGET_FREE_RETAINED_BYTES if keeps else BUDGET_FREE_BYTES
        ) + BUDGET_PER_REQUEST_BYTE * request_bytes
        self.remaining_early_bytes = 0 if keeps else BUDGET_PER_EARLY_BYTE * min(request_bytes, BUDGET_EARLY_BYTES)
        """For elements only: longer texts are never much larger than they came."""

    def charge_elements(self, size_bytes: int) -> None:
        """Pay for the elements of an array before the first of them is made, or for a short text.

        Raises:
            WireError: it is too much.
        """
        self.remaining_early_bytes -= size_bytes
        if self.remaining_early_bytes < 0:
            over, self.remaining_early_bytes = -self.remaining_early_bytes, 0
            self.charge(over)

    def charge(self, size_bytes: int) -> None:
        """Pay for one object.

        Raises:
            WireError: it is too much.
        """
        self.remaining_bytes -= size_bytes
        if self.remaining_bytes < 0:
            raise WireError("decoded, it would take far more memory than it has bytes")


def estimate_instance_bytes(cls: type[Message], version: int) -> int:
    """About what an instance takes in memory, without its texts, its tagged numbers and the elements of its arrays."""
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
