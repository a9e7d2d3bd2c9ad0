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
    """Injected fault, as `FaultHandle`; as an asynchronous context manager it removes the fault at the end."""

    def __init__(self, handle: FaultHandle) -> None:
        self.handle = handle

    async def once(self) -> AsyncFaultHandle:
        """Limit the fault to one call."""
        return await self.times(1)

    async def times(self, count: int) -> AsyncFaultHandle:
        """Limit the fault to ``count`` calls."""
        await run_in_thread(lambda: self.handle.times(count))
        return self

    async def on_call(self, number: int) -> AsyncFaultHandle:
        """Limit the fault to the call with this number; the first call is 1."""
        await run_in_thread(lambda: self.handle.on_call(number))
        return self

    async def probability(self, probability: float, seed: int = 0) -> AsyncFaultHandle:
        """Apply the fault to each call with this probability, 0 to 1; the same seed selects the same calls."""
        await run_in_thread(lambda: self.handle.probability(probability, seed))
        return self

    async def calls(self) -> int:
        """Return the number of calls that matched the fault."""
        return await run_in_thread(lambda: self.handle.calls)

    async def applied(self) -> int:
        """Return the number of calls that the fault was applied to."""
        return await run_in_thread(lambda: self.handle.applied)

    async def remove(self) -> None:
        """Remove the fault from the node."""
        await run_in_thread(self.handle.remove)

    async def __aenter__(self) -> AsyncFaultHandle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_thread(lambda: self.handle.__exit__(kind, error, trace))


class AsyncFaults:
    """Injection of faults into a node, as `Faults`; the arguments of the methods are those of `Faults`."""

    def __init__(self, faults: Callable[[], Faults]) -> None:
        self._faults = faults

    async def _add(self, add: Callable[[], FaultHandle]) -> AsyncFaultHandle:
        return AsyncFaultHandle(await run_in_thread(add))

    async def error(self, api: str, code: ErrorCode | str | int, **fields: Any) -> AsyncFaultHandle:
        """Answer requests of an API with an error code, without handling them."""
        return await self._add(lambda: self._faults().error(api, code, **fields))

    async def delay(self, api: str, seconds: float, **fields: Any) -> AsyncFaultHandle:
        """Delay the handling of requests by a time in seconds."""
        return await self._add(lambda: self._faults().delay(api, seconds, **fields))

    async def disconnect(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Close the connection instead of sending a response."""
        return await self._add(lambda: self._faults().disconnect(api, **fields))

    async def drop(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Send no response, and keep the connection open."""
        return await self._add(lambda: self._faults().drop(api, **fields))

    async def throttle(self, api: str, ms: int, **fields: Any) -> AsyncFaultHandle:
        """Set ``throttle_time_ms`` of responses to ``ms``, and mute the connection for as long."""
        return await self._add(lambda: self._faults().throttle(api, ms, **fields))

    async def half_response(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Send only half of the bytes of a response, then close the connection."""
        return await self._add(lambda: self._faults().half_response(api, **fields))

    async def disk_full(self, directory: str | None = None, **limits: Any) -> AsyncFaultHandle:
        """Fail writes to files as if the disk were full: all writes, or those below ``directory``."""
        return await self._add(lambda: self._faults().disk_full(directory, **limits))

    async def list(self) -> list[AsyncFaultHandle]:
        """Return the faults that are injected at present."""
        return [AsyncFaultHandle(each) for each in await run_in_thread(lambda: self._faults().list())]

    async def clear(self) -> None:
        """Remove all faults from the node."""
        await run_in_thread(lambda: self._faults().clear())


class AsyncNodeClock:
    """Clock of a node that a test can advance: `NodeClock` with coroutines."""

    def __init__(self, clock: Callable[[], NodeClock]) -> None:
        self._clock = clock

    async def advance(self, **duration: float) -> None:
        """Advance the clock by a duration, such as ``advance(days=7)``, with the arguments of `NodeClock.advance`."""
        await run_in_thread(lambda: self._clock().advance(**duration))
