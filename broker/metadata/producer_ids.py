"""Producer ids for this node: blocks of 1,000 from the controller, handed out one by one.

Source: ``RPCProducerIdManager.java`` (apache/kafka 4.3.1).

From KIP-730.
"""

from __future__ import annotations

import trio

from ottla.broker.metadata.admin import Submits
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest


class ProducerIds:
    """The block at hand."""

    def __init__(self, controller: Submits, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._lock = trio.Lock()
        self._broker_epoch = -1

    def registered(self, broker_epoch: int) -> None:
        """Ask under another broker epoch from now on."""
        self._broker_epoch = broker_epoch

    def next_nowait(self) -> int | None:
        """The next id, or None where the block is used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """The next id; fetches a new block where needed.

        Raises:
            ProtocolError: COORDINATOR_LOAD_IN_PROGRESS, there is no block now (this broker is not registered, or the
                controller has gone): the client asks again.
            OSError: the metadata log could not be written; the node stops.
        """
        async with self._lock:
            found = self.next_nowait()
            if found is None:
                request = AllocateProducerIdsRequest(self._node_id, self._broker_epoch)
                try:
                    block = await self._controller.submit(request)
                except ProtocolError:
                    raise _not_now() from None
                if block.error_code:
                    raise _not_now()
                self._next, self._end = block.producer_id_start, block.producer_id_start + block.producer_id_len
                found = self.next_nowait()
                assert found is not None
            return found


def _not_now() -> ProtocolError:
    return ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
