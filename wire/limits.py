"""Limits of decoding requests and records.

The docstring of each constant states what is limited, the reason, and what happens beyond it; the page of limits is
generated from it, as from `ottla.broker.config.limits`.
"""

from __future__ import annotations

MAX_STRING_BYTES = 32767
"""Longest string in a request: a name, an id, a value.

Kafka's bound of each string, whatever its length prefix can hold.

Beyond: the connection is closed.
"""
MAX_UNKNOWN_TAGS = 64
"""Unknown tagged fields of a struct.

A newer client has few.

Beyond: the connection is closed; Kafka skips them.
"""
BUDGET_FREE_BYTES = 16 * 1024 * 1024
"""Memory of a decoded request of {broker.api_spec.LARGE_BYTES bytes} and more, and {BUDGET_PER_REQUEST_BYTE}
bytes more for each of its own; elements of arrays may take another {BUDGET_PER_EARLY_BYTE} for each of its first
{BUDGET_EARLY_BYTES}.

Beyond: the connection is closed; Kafka decodes it. An element that is read in place and not kept counts
{BUDGET_LAZY_ELEMENT_BYTES}.
"""
BUDGET_FREE_RETAINED_BYTES = 4 * 1024 * 1024
"""Free bytes of the memory budget for requests whose elements are stored: joining, heartbeats and leaving of groups,
and changes and deletions of share group offsets.

Beyond: the connection is closed.
"""
BUDGET_PER_REQUEST_BYTE = 2
"""Memory for each byte of a request: strings and numbers are decoded from a frame that is kept."""
BUDGET_PER_EARLY_BYTE = 4
"""Further memory for each of the first bytes of a request, for elements of arrays only."""
BUDGET_EARLY_BYTES = 8 * 1024 * 1024
"""First bytes of a request that buy more memory: requests of large clusters have 200,000 elements of 10 to 40 bytes."""
BUDGET_LAZY_ELEMENT_BYTES = 64
"""Charge of an array element that is not materialised. It bounds the time as well, some 10 us for each element, and
allows 200,000 in any case.
"""
MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""Decompressed size of a batch whose records are read.

Beyond: Produce returns MESSAGE_TOO_LARGE. ListOffsets by timestamp returns CORRUPT_MESSAGE unless it finds its record
before; compaction keeps the batch and the tombstones behind it, and logs a warning.
"""
SNAPPY_MAX_RATIO = 32
"""The decompressed size that a snappy block claims.

A copy of 64 bytes takes at least two or three.

Beyond: it is not decompressed.
"""
