"""Result of the controller's decision on a request: records to append, and the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message


@dataclass(slots=True)
class ControllerResult:
    """Records of a decision, appended as one atomic batch, and the response to send once they are committed."""

    response: Any
    records: list[Message] = field(default_factory=list)


ControllerResultSteps = Job[ControllerResult]
"""Decision on a request, as a job. The metadata image that it reads does not change while it runs."""


class ControllerDefaults(NamedTuple):
    """Settings of this node that the controller's decisions use: topic defaults and static configuration."""

    num_partitions: int = 1
    replication_factor: int = 1
    static_config: Mapping[str, str] = MappingProxyType({})
    """Settings of this node's configuration by name."""
