"""What a control area answers: records to append and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.wire.schema import Message


@dataclass(slots=True)
class Decision:
    """Records, all of which become visible together, and the answer."""

    response: Any
    records: list[Message] = field(default_factory=list)


class Defaults(NamedTuple):
    """The node's settings that the controller's rules fall back on."""

    num_partitions: int = 1
    replication_factor: int = 1
    max_create_batch: int = 10_000
    broker: Mapping[str, str] = MappingProxyType({})
    """What was set in this node's configuration."""


class Submission(NamedTuple):
    """A request on its way into the controller: its body, the version it came in, a ticket for the reply."""

    ticket: Any
    request: Message
    version: int
