"""What a control area answers: records to append and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ottla.wire.schema import Message

T = TypeVar("T")


@dataclass(slots=True)
class Decision:
    """Records, all of which become visible together, and the answer."""

    response: Any
    records: list[Message] = field(default_factory=list)


Steps = Generator[None, None, Decision]
"""A decision made in pieces: wherever it yields, other work may go on. The image it reads does not change meanwhile."""

PAUSE_EVERY = 100
"""So many records or partitions are looked at between two pauses: about a millisecond."""


def at_once(steps: Generator[None, None, T]) -> T:
    """Do all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


class Defaults(NamedTuple):
    """The node's settings that the controller's rules fall back on."""

    num_partitions: int = 1
    replication_factor: int = 1
    broker: Mapping[str, str] = MappingProxyType({})
    """What was set in this node's configuration."""
