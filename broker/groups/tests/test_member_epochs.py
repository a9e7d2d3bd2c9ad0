"""Errors of member epochs: clients log their text, which is Kafka's word by word."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember
from ottla.broker.groups.consumer.member_epochs import check_epoch as check_consumer_epoch
from ottla.broker.groups.member_epochs import check_member_epoch
from ottla.broker.groups.share.share_group import ShareGroupMember
from ottla.broker.groups.streams.owned_tasks import check_epoch as check_streams_epoch
from ottla.broker.groups.streams.streams_group import StreamsGroupMember
from ottla.wire.errors import ErrorCode, ProtocolError

KNOWN = ("m", 7, 5)
"""Member id, epoch and previous epoch."""
CHECKS: dict[str, Callable[[int], None]] = {
    "consumer": lambda epoch: check_consumer_epoch(ConsumerGroupMember(*KNOWN), epoch, []),
    "share": partial(check_member_epoch, "share", ShareGroupMember(*KNOWN), names_previous=True),
    "streams": lambda epoch: check_streams_epoch(StreamsGroupMember(*KNOWN), epoch, ([], [], [])),
}


def error_text(check: Callable[[int], Any], epoch: int) -> str:
    with pytest.raises(ProtocolError) as caught:
        check(epoch)
    assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    return str(caught.value.message)


@pytest.mark.parametrize("type_name", CHECKS)
@pytest.mark.parametrize(("epoch", "than"), [(8, "greater"), (6, "smaller")])
def test_error_of_a_wrong_epoch_has_the_text_of_kafka(type_name: str, epoch: int, than: str) -> None:
    previous = " and it does not match the previous member epoch (5)"
    tail = f",{previous}" if (type_name, than) == ("share", "smaller") else ""
    assert error_text(CHECKS[type_name], epoch) == (
        f"The {type_name} group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"(7){tail}. The member must abandon all its partitions and rejoin."
    )


@pytest.mark.parametrize("type_name", CHECKS)
def test_member_may_be_in_its_epoch_or_the_previous_one(type_name: str) -> None:
    CHECKS[type_name](7)
    CHECKS[type_name](5)
