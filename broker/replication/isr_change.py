"""A change of the ISR that the controller is asked for, and what a partition needs to know to propose one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.replication.partition_state import IsrChange, IsrEligibility, IsrState, LeaderState

if TYPE_CHECKING:
    from ottla.broker.replication.hosted_partition import HostedPartition


class PendingIsrChange(NamedTuple):
    """A change of the ISR that the controller is to be asked for; only its answer to this very one counts."""

    replica: HostedPartition
    leader_state: LeaderState
    pending_isr: IsrState
    change: IsrChange

    @property
    def is_current(self) -> bool:
        """Whether it is still wanted: the image may have been quicker, and the leadership may have gone."""
        return self.replica.state is self.leader_state and self.leader_state.isr is self.pending_isr


class IsrDependencies(NamedTuple):
    """What the node's settings and the image say about every partition's ISR, and who hears of what becomes of it."""

    lag_max_ms: int
    is_eligible: IsrEligibility
    submit_isr_change: Callable[[PendingIsrChange], None] = lambda asked: None
    """Have the controller asked for another ISR."""
    on_high_watermark_moved: Callable[[HostedPartition], None] = lambda replica: None
    """The high watermark has moved, and not by an append."""
    broker_epoch_of: Callable[[int], int] = lambda broker: -1
    """The broker epoch the image has of a broker that is alive, -1 for none."""
