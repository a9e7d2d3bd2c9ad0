"""Metadata of the classic protocol that consumer groups read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.groups.consumer import consumer_protocol
from ottla.wire.errors import WireError


@pytest.mark.parametrize("decode", [consumer_protocol.decode_subscription, consumer_protocol.decode_assignment])
def test_decode_embedded_metadata_over_record_size_is_refused(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(WireError, match=f"too large: {consumer_protocol.LARGEST_BYTES + 1} bytes"):
        list(decode(bytes(consumer_protocol.LARGEST_BYTES + 1)))
    list(decode(bytes(consumer_protocol.LARGEST_BYTES)))
