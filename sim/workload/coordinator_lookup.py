"""Lookup of a transaction coordinator at every node: an isolated node may return outdated information."""

from __future__ import annotations

from contextlib import suppress

from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from sim.workload.clients import Address, RetriableError, SimClient

TRANSACTION_KEY_TYPE = 1


async def is_coordinator_agreed(client: SimClient, transactional_id: str, requested: Address | None) -> bool:
    """Return True if every node that responds without an error names ``requested`` as the coordinator.

    Nodes without a response are skipped, so that the result is also True if none responds. With ``requested`` None it
    is False as soon as a node names a coordinator.
    """
    for node in client.service.bootstrap:
        with suppress(RetriableError):
            request = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id])
            found = (await client.call(request, 4, node)).coordinators[0]
            if not found.error_code and (found.host, found.port) != requested:
                return False
    return True
