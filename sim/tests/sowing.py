"""How a bug is planted: one thing of a class or a module is replaced by another, made from the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Plant(NamedTuple):
    """A bug."""

    sow: Callable[[], None]
    names: str
    """Violations it may show as."""
    quorum: bool = False
    """Whether controllers alone show it."""
    transactions: int = 0
    """The version of transactions that shows it; 0: none need be made."""
    late: bool = False
    """Whether it shows where nothing goes wrong but that requests come late."""
    groups: bool = False
    """Whether members of the groups of Kafka 4 show it."""


def replace(where: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` gives for the real thing in its place."""
    setattr(where, name, make(getattr(where, name)))
