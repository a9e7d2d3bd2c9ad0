"""Validation of the member epoch in heartbeats of consumer, share and streams groups.

Source: ``GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid`` and the corresponding methods for share and
streams groups (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.errors import ErrorCode, ProtocolError


def check_member_epoch(
    type_name: str,
    member: Any,
    epoch: int,
    has_missed_response: Callable[[], bool] = lambda: True,
    *,
    names_previous: bool = False,
) -> None:
    """Check that a heartbeat has the member's epoch, or its previous epoch because the last response was lost.

    Args:
        type_name: type of the group, for the error message.
        member: the member, with ``epoch`` and ``previous_epoch``.
        epoch: member epoch of the request.
        has_missed_response: called for the previous epoch: returns True if the partitions the member reports to own are
            compatible with a lost response.
        names_previous: whether the error message contains the previous epoch.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if epoch == member.epoch or (member.previous_epoch == epoch < member.epoch and has_missed_response()):
        return
    than, tail = "greater", ""
    if epoch < member.epoch:
        than = "smaller"
        if names_previous:
            tail = f", and it does not match the previous member epoch ({member.previous_epoch})"
    why = (
        f"The {type_name} group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}){tail}. The member must abandon all its partitions and rejoin."
    )
    raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)
