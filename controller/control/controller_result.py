"""Result of a control area: records to append and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message


@dataclass(slots=True)
class ControllerResult:
    """Records, all of which become visible together, and the answer."""

    response: Any
    records: list[Message] = field(default_factory=list)


ControllerResultSteps = Job[ControllerResult]
"""A decision made in pieces: wherever it yields, other work may go on. The image it reads does not change meanwhile."""


class ControllerDefaults(NamedTuple):
    """The node's settings that the controller's rules fall back on."""

    num_partitions: int = 1
    replication_factor: int = 1
    static_config: Mapping[str, str] = MappingProxyType({})
    """Settings of this node's configuration."""
