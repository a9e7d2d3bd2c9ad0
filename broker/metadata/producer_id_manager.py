"""Producer ids of this node: allocated in blocks of 1,000 from the controller, the next block in advance.

Source: ``RPCProducerIdManager.java`` (apache/kafka 4.3.1).

From KIP-730.
"""

from __future__ import annotations

import trio

from ottla.broker.metadata.controller_forwarder import RequestSubmitter, StartInBackground
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

PREFETCH_THRESHOLD = 0.9
"""Used fraction of a block at which the next one is requested."""

ProducerIdBlock = tuple[int, int]
"""First producer id of a block, and the id after its last."""


class ProducerIdUnavailable(ProtocolError):
    """Raised with COORDINATOR_LOAD_IN_PROGRESS if no producer id is available; `wait_available` waits for one."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ProducerIdManager:
    """Generator of producer ids from the current block and a prefetched one."""

    def __init__(self, controller: RequestSubmitter, node_id: int, beside: StartInBackground) -> None:
        """Create a manager without a block; ``beside`` starts background tasks."""
        self._controller = controller
        self._node_id = node_id
        self._start_in_background = beside
        self._next = 0
        self._end = 0
        self._prefetch_from = 0
        self._next_block: ProducerIdBlock | None = None
        self._is_prefetching = False
        self._lock = trio.Lock()
        self._broker_epoch = -1
        self._failures = 0

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """Set this broker's epoch, which requests for blocks contain, after its registration."""
        self._broker_epoch = broker_epoch

    def try_generate(self) -> int | None:
        """Return the next producer id without waiting; None if none is available.

        When 90 % of the block are used, or none is left, the next block is requested in the background.
        """
        found = self._pop()
        if self._needs_prefetch and not self._is_prefetching:
            self._is_prefetching = True
            self._start_in_background(self._prefetch)
        return found

    def generate_nowait(self) -> int:
        """Return the next producer id without waiting.

        Raises:
            ProducerIdUnavailable: none is available.
        """
        found = self.try_generate()
        if found is None:
            raise ProducerIdUnavailable
        return found

    async def generate(self) -> int:
        """Return the next producer id; wait for a new block if none is available.

        Raises:
            ProducerIdUnavailable: no block (broker not registered, or no active controller); the client retries.
            OSError: the metadata log could not be written; the node stops.
        """
        await self.wait_available()
        return self.generate_nowait()

    async def wait_available(self) -> None:
        """Wait until a producer id is available. All waiting tasks share one response of the controller.

        Raises:
            ProducerIdUnavailable, OSError: as `generate`.
        """
        failures = self._failures
        async with self._lock:
            if self._next == self._end and self._next_block is None:
                if self._failures != failures:
                    raise ProducerIdUnavailable
                self._next_block = await self._allocate_block()

    @property
    def _needs_prefetch(self) -> bool:
        return self._next_block is None and self._next >= self._prefetch_from

    def _pop(self) -> int | None:
        if self._next == self._end:
            if self._next_block is None:
                return None
            self._next, self._end = self._next_block
            self._next_block = None
            self._prefetch_from = self._next + int((self._end - self._next) * PREFETCH_THRESHOLD)
        self._next += 1
        return self._next - 1

    async def _prefetch(self) -> None:
        """Request the next block; after an error it is requested again with the next id that is generated."""
        try:
            async with self._lock:
                if self._needs_prefetch:
                    self._next_block = await self._allocate_block()
        except ProducerIdUnavailable:
            pass
        finally:
            self._is_prefetching = False

    async def _allocate_block(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(self._node_id, self._broker_epoch)
        try:
            block = await self._controller.submit(request)
        except ProtocolError:
            block = None
        if block is None or block.error_code:
            self._failures += 1
            raise ProducerIdUnavailable
        return block.producer_id_start, block.producer_id_start + block.producer_id_len
