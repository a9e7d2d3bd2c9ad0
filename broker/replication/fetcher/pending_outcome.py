"""Outcome of a follower's Fetch for one partition, before it is applied to the partition's log."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.replication.fetcher.fetch_state import FetchOutcome
from ottla.broker.replication.hosted_partition import HostedPartition


class PendingOutcome(NamedTuple):
    """Outcome of a Fetch for a partition, with its replica and the leader epoch in which it was fetched."""

    outcome: FetchOutcome
    replica: HostedPartition
    leader_epoch: int
