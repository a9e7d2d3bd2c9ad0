"""Result of the controller's decision on a request (records to append, response), and settings that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message


@dataclass(slots=True)
class ControllerResult:
    """Decision of the active controller: records, appended as one atomic batch, and the response.

    The response is sent once the records are committed. It is the response message of a request, or None, a bool or a
    text (to log) for internal work.
    """

    response: Any
    records: list[Message] = field(default_factory=list)


ControllerResultSteps = Job[ControllerResult]
"""Decision on a request, as a job. The metadata image that it reads does not change while it runs."""


class ControllerDefaults(NamedTuple):
    """Settings of this node's configuration that the controller's decisions use.

    ``num_partitions`` and ``replication_factor`` apply to new topics that leave them open (-1).
    """

    num_partitions: int = 1
    replication_factor: int = 1
    static_config: Mapping[str, str] = MappingProxyType({})
    """Settings of this node's configuration by name."""
