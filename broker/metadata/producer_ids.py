"""Producer ids for this node: blocks of 1,000 from the controller, handed out one by one, the next asked for in time.

Source: ``RPCProducerIdManager.java`` (apache/kafka 4.3.1).

From KIP-730.
"""

from __future__ import annotations

import trio

from ottla.broker.metadata.admin import Beside, Submits
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

AHEAD = 0.9
"""When so much of a block is used, the next one is asked for."""

Block = tuple[int, int]
"""The first id, and the one behind the last."""


class NoneNow(ProtocolError):
    """COORDINATOR_LOAD_IN_PROGRESS: there is no id just now. `ProducerIds.ready` waits for one."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ProducerIds:
    """The block at hand, and the one that comes after it."""

    def __init__(self, controller: Submits, node_id: int, beside: Beside) -> None:
        """``beside`` runs what nobody waits for."""
        self._controller = controller
        self._node_id = node_id
        self._beside = beside
        self._next = 0
        self._end = 0
        self._ahead_at = 0
        self._following: Block | None = None
        self._asking = False
        self._lock = trio.Lock()
        self._broker_epoch = -1
        self._failures = 0

    def registered(self, broker_epoch: int) -> None:
        """Ask under another broker epoch from now on."""
        self._broker_epoch = broker_epoch

    def next_nowait(self) -> int | None:
        """The next id, or None where there is none just now: then one is asked for, and who asks again may get it."""
        found = self._pop()
        if self._wants_more and not self._asking:
            self._asking = True
            self._beside(self._ask_ahead)
        return found

    def take(self) -> int:
        """The next id, for who cannot wait.

        Raises:
            NoneNow: there is none.
        """
        found = self.next_nowait()
        if found is None:
            raise NoneNow
        return found

    async def next(self) -> int:
        """The next id; waits for a new block where needed.

        Raises:
            NoneNow: there is no block (this broker is not registered, or the controller has gone): the client asks
                again.
            OSError: the metadata log could not be written; the node stops.
        """
        await self.ready()
        return self.take()

    async def ready(self) -> None:
        """Wait until there is an id to be had. All who wait for one answer of the controller are told of it.

        Raises:
            NoneNow, OSError: as `next`.
        """
        failures = self._failures
        async with self._lock:
            if self._next == self._end and self._following is None:
                if self._failures != failures:
                    raise NoneNow
                self._following = await self._block()

    @property
    def _wants_more(self) -> bool:
        return self._following is None and self._next >= self._ahead_at

    def _pop(self) -> int | None:
        if self._next == self._end:
            if self._following is None:
                return None
            self._next, self._end = self._following
            self._following = None
            self._ahead_at = self._next + int((self._end - self._next) * AHEAD)
        self._next += 1
        return self._next - 1

    async def _ask_ahead(self) -> None:
        """Ask for the block after this one; where there is none yet, the next id that is taken asks again."""
        try:
            async with self._lock:
                if self._wants_more:
                    self._following = await self._block()
        except NoneNow:
            pass
        finally:
            self._asking = False

    async def _block(self) -> Block:
        request = AllocateProducerIdsRequest(self._node_id, self._broker_epoch)
        try:
            block = await self._controller.submit(request)
        except ProtocolError:
            block = None
        if block is None or block.error_code:
            self._failures += 1
            raise NoneNow
        return block.producer_id_start, block.producer_id_start + block.producer_id_len
