"""Fault injection and clock of a node for asyncio and trio: methods of `ottla.tools.fault_client` as coroutines."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.tools.async_calls import run_in_thread

if TYPE_CHECKING:
    from ottla.tools.fault_client import FaultHandle, Faults, NodeClock
    from ottla.wire.errors import ErrorCode


class AsyncFaultHandle:
    """Injected fault, as `FaultHandle`; an asynchronous context manager that removes the fault at the end."""

    def __init__(self, handle: FaultHandle) -> None:
        self.handle = handle

    async def once(self) -> AsyncFaultHandle:
        """Apply the fault to one call at most, as ``times(1)``, and return this handle."""
        return await self.times(1)

    async def times(self, count: int) -> AsyncFaultHandle:
        """Apply the fault to ``count`` calls at most, including those it was applied to before; return this handle."""
        await run_in_thread(lambda: self.handle.times(count))
        return self

    async def on_call(self, number: int) -> AsyncFaultHandle:
        """Apply the fault only to the ``number``-th matching call since its injection, from 1; return the handle."""
        await run_in_thread(lambda: self.handle.on_call(number))
        return self

    async def probability(self, probability: float, seed: int = 0) -> AsyncFaultHandle:
        """Apply the fault to each call with this probability, 0 to 1; return this handle.

        The same seed selects the same calls.
        """
        await run_in_thread(lambda: self.handle.probability(probability, seed))
        return self

    async def calls(self) -> int:
        """Request the number of calls that matched the fault, whether or not it was applied to them."""
        return await run_in_thread(lambda: self.handle.calls)

    async def applied(self) -> int:
        """Request the number of calls that the fault was applied to."""
        return await run_in_thread(lambda: self.handle.applied)

    async def remove(self) -> None:
        """Remove the fault from the node, as `FaultHandle.remove`."""
        await run_in_thread(self.handle.remove)

    async def __aenter__(self) -> AsyncFaultHandle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_thread(lambda: self.handle.__exit__(kind, error, trace))


class AsyncFaults:
    """Injection of faults into a node from asyncio or trio, as `Faults`; methods such as `error` are coroutines.

    They add a fault and return its `AsyncFaultHandle`; the arguments are those of the methods of `Faults`.
    """

    def __init__(self, faults: Callable[[], Faults]) -> None:
        self._faults = faults

    async def _add(self, add: Callable[[], FaultHandle]) -> AsyncFaultHandle:
        return AsyncFaultHandle(await run_in_thread(add))

    async def error(self, api: str, code: ErrorCode | str | int, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: the node answers requests of an API with an error code, as `Faults.error`."""
        return await self._add(lambda: self._faults().error(api, code, **fields))

    async def delay(self, api: str, seconds: float, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: the node delays requests of an API, and later ones of the same connection, by ``seconds``."""
        return await self._add(lambda: self._faults().delay(api, seconds, **fields))

    async def disconnect(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: the node closes the connection instead of sending a response."""
        return await self._add(lambda: self._faults().disconnect(api, **fields))

    async def drop(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: the node sends no response, and keeps the connection open."""
        return await self._add(lambda: self._faults().drop(api, **fields))

    async def throttle(self, api: str, ms: int, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: responses have ``throttle_time_ms`` of ``ms``, as `Faults.throttle`."""
        return await self._add(lambda: self._faults().throttle(api, ms, **fields))

    async def half_response(self, api: str, **fields: Any) -> AsyncFaultHandle:
        """Inject a fault: the node sends only half of the bytes of a response, then closes the connection."""
        return await self._add(lambda: self._faults().half_response(api, **fields))

    async def disk_full(self, directory: str | None = None, **limits: Any) -> AsyncFaultHandle:
        """Inject a fault: writes to all files, or to those below ``directory``, fail, as `Faults.disk_full`."""
        return await self._add(lambda: self._faults().disk_full(directory, **limits))

    async def list(self) -> list[AsyncFaultHandle]:
        """Return handles of the faults that are injected at present."""
        return [AsyncFaultHandle(each) for each in await run_in_thread(lambda: self._faults().list())]

    async def clear(self) -> None:
        """Remove all faults from the node."""
        await run_in_thread(lambda: self._faults().clear())


class AsyncNodeClock:
    """Clock of a node that a test can advance: `NodeClock.advance` as a coroutine, without its other methods."""

    def __init__(self, clock: Callable[[], NodeClock]) -> None:
        self._clock = clock

    async def advance(self, **duration: float) -> None:
        """Advance the clock by a duration, such as ``advance(days=7)``, with the arguments of `NodeClock.advance`."""
        await run_in_thread(lambda: self._clock().advance(**duration))
