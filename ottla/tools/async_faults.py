"""Faults and clock of a node for asyncio and trio: the methods of `ottla.tools.fault_client` as coroutines."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.tools.async_calls import run_in_thread

if TYPE_CHECKING:
    from ottla.tools.fault_client import FaultHandle, Faults, NodeClock
    from ottla.wire.errors import ErrorCode


class AsyncFaultHandle:
    """A fault in force, as `FaultHandle`. As an asynchronous context manager it is removed at the end of the block."""

    def __init__(self, handle: FaultHandle) -> None:
        self.handle = handle

    async def once(self) -> AsyncFaultHandle:
        """Apply the fault to one call."""
        return await self.times(1)

    async def times(self, count: int) -> AsyncFaultHandle:
        """Apply the fault to ``count`` calls."""
        await run_in_thread(lambda: self.handle.times(count))
        return self

    async def on_call(self, number: int) -> AsyncFaultHandle:
        """Apply the fault to the call of this number alone."""
        await run_in_thread(lambda: self.handle.on_call(number))
        return self

    async def probability(self, probability: float, seed: int = 0) -> AsyncFaultHandle:
        """Apply the fault to calls at random."""
        await run_in_thread(lambda: self.handle.probability(probability, seed))
        return self

    async def calls(self) -> int:
        """Return the number of calls that matched."""
        return await run_in_thread(lambda: self.handle.calls)

    async def applied(self) -> int:
        """Return the number of calls that the fault was applied to."""
        return await run_in_thread(lambda: self.handle.applied)

    async def remove(self) -> None:
        """Remove the fault."""
        await run_in_thread(self.handle.remove)

    async def __aenter__(self) -> AsyncFaultHandle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_thread(lambda: self.handle.__exit__(kind, error, trace))


class AsyncFaults:
    """Faults of a node, as `Faults`."""

    def __init__(self, faults: Callable[[], Faults]) -> None:
        self._faults = faults

    async def _add(self, add: Callable[[], FaultHandle]) -> AsyncFaultHandle:
        return AsyncFaultHandle(await run_in_thread(add))

    async def error(self, api: str, code: ErrorCode | str | int, **fields: Any) -> AsyncFaultHandle:
        """Respond with an error code."""
        return await self._add(lambda: self._faults().error(api, code, **fields))

    async def delay(self, api: str, seconds: float, **fields: Any) -> AsyncFaultHandle:
        """Handle requests later."""
        return await self._add(lambda: self._faults().delay(api, seconds, **fields))

    async def disconnect(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Close the connection without a response."""
        return await self._add(lambda: self._faults().disconnect(api, **fields))

    async def drop(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Send no response, and keep the connection."""
        return await self._add(lambda: self._faults().drop(api, **fields))

    async def throttle(self, api: str, ms: int, **fields: Any) -> AsyncFaultHandle:
        """Set the throttle time of responses, and mute the connection for as long."""
        return await self._add(lambda: self._faults().throttle(api, ms, **fields))

    async def half_response(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Send half of the bytes of the response, and close the connection."""
        return await self._add(lambda: self._faults().half_response(api, **fields))

    async def disk_full(self, directory: str | None = None, **limits: Any) -> AsyncFaultHandle:
        """Let writes to files fail."""
        return await self._add(lambda: self._faults().disk_full(directory, **limits))

    async def list(self) -> list[AsyncFaultHandle]:
        """Return the faults in force."""
        return [AsyncFaultHandle(each) for each in await run_in_thread(lambda: self._faults().list())]

    async def clear(self) -> None:
        """Remove all faults."""
        await run_in_thread(lambda: self._faults().clear())


class AsyncNodeClock:
    """Clock of a node, as `NodeClock`."""

    def __init__(self, clock: Callable[[], NodeClock]) -> None:
        self._clock = clock

    async def advance(self, **duration: float) -> None:
        """Advance the clock: ``advance(days=7)``."""
        await run_in_thread(lambda: self._clock().advance(**duration))
