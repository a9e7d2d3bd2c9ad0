"""Client of a node's listener for faults: error responses, delays, closed connections, a full disk, and its clock.

Its calls block. It reads the address and the token from the data directory at each call, as a restart changes them.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from ottla.wire.errors import ErrorCode

FILE_NAME = "ottla-faults.json"
TIMEOUT_S = 10.0
LIMITS = ("times", "on_call", "probability", "seed")


class FaultsDisabled(Exception):
    """The node does not run, or runs without ``ottla.faults=true``."""


class FaultRejected(ValueError):
    """The node rejected a fault; the message says why."""


class FaultConnection:
    """Requests to the listener for faults of one node.

    Args:
        data_dir: a data directory of the node on this machine; of several with commas, the first.
        address: ``HOST:PORT`` of the listener, in place of the data directory.
        token: its token, with ``address``.
    """

    def __init__(self, data_dir: str = "", *, address: str = "", token: str = "") -> None:
        self._path = f"{data_dir.split(',', maxsplit=1)[0].rstrip('/')}/{FILE_NAME}"
        self._given = (address, token)

    def endpoint(self) -> tuple[str, str]:
        """Return the address and the token.

        Raises:
            FaultsDisabled: the node has no listener for faults.
        """
        if self._given[0]:
            return self._given
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            raise FaultsDisabled(f"{self._path} does not exist: start the node with ottla.faults=true") from None
        return found["address"], found["token"]

    def call(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return its response.

        Raises:
            FaultsDisabled: no node listens; FaultRejected: the node rejected the request.
        """
        address, token = self.endpoint()
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        body = None if fields is None else json.dumps({k: v for k, v in fields.items() if v is not None})
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            raise FaultsDisabled(f"no response from the listener for faults at {address}: {reason}") from None
        finally:
            connection.close()
        try:
            decoded = json.loads(answer)
        except ValueError:
            raise FaultRejected(f"{response.status} {answer.decode(errors='replace').strip()}") from None
        if response.status != http.client.OK:
            raise FaultRejected(decoded["error"])
        return decoded


class FaultHandle:
    """A fault in force, until the node stops. As a context manager it is removed at the end of the block."""

    def __init__(self, connection: FaultConnection, described: Mapping[str, Any]) -> None:
        self._connection = connection
        self._endpoint = connection.endpoint()
        self._limits = {name: described[name] for name in LIMITS if name in described}
        self.described = dict(described)
        """The fault as the node describes it, with the calls at the time of the last request."""
        self.id: int = described["id"]

    def __repr__(self) -> str:
        return f"FaultHandle({self.described})"

    def _call(self, method: str, path: str, **fields: Any) -> Any:
        """Send a request about the fault.

        Raises:
            FaultRejected: the node was started again: its ids are those of other faults.
        """
        if self._connection.endpoint() != self._endpoint:
            raise FaultRejected(f"fault {self.id} does not exist")
        return self._connection.call(method, path, fields or None)

    def _limit(self, **limits: Any) -> FaultHandle:
        self._limits |= limits
        self.described = self._call("POST", "/faults/limits", id=self.id, **self._limits)
        return self

    def once(self) -> FaultHandle:
        """Apply the fault to one call."""
        return self._limit(times=1)

    def times(self, count: int) -> FaultHandle:
        """Apply the fault to ``count`` calls."""
        return self._limit(times=count)

    def on_call(self, number: int) -> FaultHandle:
        """Apply the fault to the call of this number alone; the first call is 1."""
        return self._limit(on_call=number)

    def probability(self, probability: float, seed: int = 0) -> FaultHandle:
        """Apply the fault to calls at random; the same seed chooses the same calls."""
        return self._limit(probability=float(probability), seed=seed)

    def refresh(self) -> FaultHandle:
        """Ask the node for the state of the fault.

        Raises:
            FaultRejected: it was removed.
        """
        every = self._call("GET", "/faults")["faults"]
        found = next((each for each in every if each["id"] == self.id), None)
        if found is None:
            raise FaultRejected(f"fault {self.id} does not exist")
        self.described = found
        return self

    @property
    def calls(self) -> int:
        """The number of calls that matched, asked from the node; after its removal, the number at that time."""
        return self._count("calls")

    @property
    def applied(self) -> int:
        """The number of calls that the fault was applied to, as `calls`."""
        return self._count("applied")

    def _count(self, name: str) -> int:
        if self.id >= 0:
            self.refresh()
        return int(self.described[name])

    def remove(self) -> None:
        """Remove the fault. Removing it twice is no error."""
        if self.id >= 0:
            (self.described,) = self._call("POST", "/faults/remove", id=self.id)["removed"]
            self.id = -1

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(FaultRejected, FaultsDisabled):  # removed in the block, or by a stop of the node
            self.remove()


class Faults:
    """Faults of a node.

    An API has Kafka's name, such as ``"Produce"`` or ``"AddPartitionsToTxn"``. ``topic`` and ``client_id`` restrict a
    fault to requests that name the topic, and to those of the client. ``limits`` are ``times``, ``on_call``,
    ``probability`` and ``seed``, as the methods of `FaultHandle`; given here, no call comes before them.
    """

    def __init__(self, connection: FaultConnection) -> None:
        self.connection = connection

    def add(self, fault: str, **fields: Any) -> FaultHandle:
        """Add a fault by its name.

        Raises:
            FaultRejected: a field is unknown, missing or invalid.
        """
        return FaultHandle(self.connection, self.connection.call("POST", "/faults", {"fault": fault, **fields}))

    def error(
        self,
        api: str,
        code: ErrorCode | str | int,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        **limits: Any,
    ) -> FaultHandle:
        """Respond with an error code; the request is not handled."""
        name = code.name if isinstance(code, ErrorCode) else code
        return self.add("error", api=api, code=name, topic=topic, client_id=client_id, **limits)

    def delay(
        self, api: str, seconds: float, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Handle requests later; later requests of the same connection wait, too."""
        return self.add("delay", api=api, ms=round(seconds * 1000), topic=topic, client_id=client_id, **limits)

    def disconnect(
        self,
        api: str,
        *,
        handled: bool = False,
        topic: str | None = None,
        client_id: str | None = None,
        **limits: Any,
    ) -> FaultHandle:
        """Close the connection without a response; ``handled``: after the request was handled."""
        return self.add("disconnect", api=api, handled=handled, topic=topic, client_id=client_id, **limits)

    def drop(
        self,
        api: str,
        *,
        handled: bool = False,
        topic: str | None = None,
        client_id: str | None = None,
        **limits: Any,
    ) -> FaultHandle:
        """Send no response, and keep the connection; ``handled``: after the request was handled."""
        return self.add("drop", api=api, handled=handled, topic=topic, client_id=client_id, **limits)

    def throttle(
        self, api: str, ms: int, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Set the throttle time of responses, and mute the connection for as long."""
        return self.add("throttle", api=api, ms=ms, topic=topic, client_id=client_id, **limits)

    def half_response(
        self, api: str, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Handle the request, send half of the bytes of its response, and close the connection."""
        return self.add("half_response", api=api, topic=topic, client_id=client_id, **limits)

    def disk_full(self, directory: str | None = None, **limits: Any) -> FaultHandle:
        """Let writes to files fail: all, or those below a directory. A log directory with a failed write is offline."""
        path = None if directory is None else os.path.abspath(directory)
        return self.add("disk_full", directory=path, **limits)

    def list(self) -> list[FaultHandle]:
        """Return the faults in force."""
        return [FaultHandle(self.connection, each) for each in self.connection.call("GET", "/faults")["faults"]]

    def clear(self) -> None:
        """Remove all faults."""
        self.connection.call("POST", "/faults/remove", {})


class NodeClock:
    """Clock of a node. It is ahead of that of the machine by what it was advanced, until the node stops."""

    def __init__(self, connection: FaultConnection) -> None:
        self._connection = connection

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Advance the clock: what is due then, is due at once.

        Raises:
            FaultRejected: the time is negative or too long.
        """
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        self._connection.call("POST", "/clock/advance", {"ms": round(total_s * 1000 + milliseconds)})

    @property
    def offset_ms(self) -> int:
        """How far the clock is ahead of that of the machine."""
        return int(self._connection.call("GET", "/faults")["clock"]["offset_ms"])

    @property
    def now_ms(self) -> int:
        """Its time in milliseconds since 1970."""
        return int(self._connection.call("GET", "/faults")["clock"]["now_ms"])
