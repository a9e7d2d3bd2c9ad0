"""Blocking client of a node's fault endpoint: injects errors, delays, a full disk and others; advances its clock.

Each call reads the endpoint's address and token from the data directory, since a restart changes them, unless they are
given.
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
    """Raised if the node does not run, runs without ``ottla.faults=true``, or its fault endpoint does not respond."""


class FaultRejected(ValueError):
    """Raised if the node rejects a request about a fault or the clock; the message has the reason."""


class FaultConnection:
    """HTTP client of the fault endpoint of one node; each call opens a new connection.

    Args:
        data_dir: data directory of the node on this machine; the first one of a list separated by commas is used.
        address: ``HOST:PORT`` of the endpoint, instead of the data directory.
        token: token of the endpoint, together with ``address``.
    """

    def __init__(self, data_dir: str = "", *, address: str = "", token: str = "") -> None:
        self._path = f"{data_dir.split(',', maxsplit=1)[0].rstrip('/')}/{FILE_NAME}"
        self._given = (address, token)

    def endpoint(self) -> tuple[str, str]:
        """Return address (``HOST:PORT``) and token of the fault endpoint: as given, or else from the data directory.

        Raises:
            FaultsDisabled: the data directory has no file of a fault endpoint.
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
        """Send an HTTP request to the endpoint and return the decoded JSON response.

        Args:
            method: ``GET`` or ``POST``.
            path: path of the endpoint, such as ``/faults``.
            fields: JSON body; fields with the value None are left out.

        Raises:
            FaultsDisabled: the node has no fault endpoint, or it does not respond within `TIMEOUT_S`.
            FaultRejected: the node rejected the request.
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
    """Injected fault, in force until it is removed or the node stops; as a context manager it is removed at the end.

    Its limits, such as `times` and `on_call`, apply together; each change restarts the random numbers of `probability`.
    """

    def __init__(self, connection: FaultConnection, described: Mapping[str, Any]) -> None:
        self._connection = connection
        self._endpoint = connection.endpoint()
        self._limits = {name: described[name] for name in LIMITS if name in described}
        self.described = dict(described)
        """Description of the fault by the node, with its call counts at the time of the last request."""
        self.id: int = described["id"]
        """Id of the fault at the node; -1 after `remove`."""

    def __repr__(self) -> str:
        return f"FaultHandle({self.described})"

    def _call(self, method: str, path: str, **fields: Any) -> Any:
        """Send an HTTP request about the fault to the node, and return the decoded response.

        Raises:
            FaultRejected: the node was started again, or rejected the request. Ids of faults start again at 1 with the
                node.
            FaultsDisabled: the node does not run.
        """
        if self._connection.endpoint() != self._endpoint:
            raise FaultRejected(f"fault {self.id} does not exist")
        return self._connection.call(method, path, fields or None)

    def _limit(self, **limits: Any) -> FaultHandle:
        self._limits |= limits
        self.described = self._call("POST", "/faults/limits", id=self.id, **self._limits)
        return self

    def once(self) -> FaultHandle:
        """Apply the fault to one call at most, as ``times(1)``, and return this handle."""
        return self._limit(times=1)

    def times(self, count: int) -> FaultHandle:
        """Apply the fault to ``count`` calls at most, including those it was applied to before; return this handle."""
        return self._limit(times=count)

    def on_call(self, number: int) -> FaultHandle:
        """Apply the fault only to the ``number``-th matching call since its injection, from 1; return the handle."""
        return self._limit(on_call=number)

    def probability(self, probability: float, seed: int = 0) -> FaultHandle:
        """Apply the fault to each call with this probability, 0 to 1; return this handle.

        The same seed selects the same calls.
        """
        return self._limit(probability=float(probability), seed=seed)

    def refresh(self) -> FaultHandle:
        """Request the present state of the fault from the node, store it in `described`, and return this handle.

        Raises:
            FaultRejected: the fault was removed, or the node was started again; FaultsDisabled: the node does not
                run.
        """
        every = self._call("GET", "/faults")["faults"]
        found = next((each for each in every if each["id"] == self.id), None)
        if found is None:
            raise FaultRejected(f"fault {self.id} does not exist")
        self.described = found
        return self

    @property
    def calls(self) -> int:
        """Number of calls that matched the fault, requested from the node; after `remove`, that at that time.

        Raises:
            FaultRejected: the fault was removed otherwise, or the node was started again; FaultsDisabled: the node
                does not run.
        """
        return self._count("calls")

    @property
    def applied(self) -> int:
        """Number of calls that the fault was applied to, requested from the node; after `remove`, that at that time.

        Raises:
            FaultRejected: the fault was removed otherwise, or the node was started again; FaultsDisabled: the node
                does not run.
        """
        return self._count("applied")

    def _count(self, name: str) -> int:
        if self.id >= 0:
            self.refresh()
        return int(self.described[name])

    def remove(self) -> None:
        """Remove the fault from the node; do nothing if this handle has removed it before.

        Raises:
            FaultRejected: the fault was removed otherwise, or the node was started again; FaultsDisabled: the node
                does not run.
        """
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
    """Injection of faults into a node: methods such as `error` add a fault and return its handle.

    APIs have Kafka's names, such as ``"Produce"`` or ``"AddPartitionsToTxn"``. ``topic`` and ``client_id`` restrict a
    fault to requests that contain the topic, or that the client sends; None for all, except Fetch requests of
    followers, which only their ``client_id`` selects. ``limits`` are ``times``, ``on_call``, ``probability`` and
    ``seed``, as the methods of `FaultHandle`; they apply from the first call on. To a request with several faults all
    delays apply, but only the oldest other fault.

    Raises:
        FaultRejected: by each method, if the node rejects an argument; FaultsDisabled: if it has no fault endpoint.
    """

    def __init__(self, connection: FaultConnection) -> None:
        self.connection = connection

    def add(self, fault: str, **fields: Any) -> FaultHandle:
        """Inject a fault of the kind ``fault``, such as ``"delay"``.

        Args:
            fault: kind of the fault.
            fields: fields of the fault, such as ``api`` and ``ms``.

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
        """Inject a fault: the node answers requests of an API with an error code, without handling them.

        It closes the connection if the response has no field for the code, or if there is no response (acks=0).
        """
        name = code.name if isinstance(code, ErrorCode) else code
        return self.add("error", api=api, code=name, topic=topic, client_id=client_id, **limits)

    def delay(
        self, api: str, seconds: float, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Inject a fault: the node delays requests of an API, and later ones of the same connection, by ``seconds``."""
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
        """Inject a fault: the node closes the connection instead of sending a response.

        ``handled``: True to handle the request before; False to drop it.
        """
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
        """Inject a fault: the node sends no response, and keeps the connection open.

        ``handled``: True to handle the request nevertheless; False to drop it.
        """
        return self.add("drop", api=api, handled=handled, topic=topic, client_id=client_id, **limits)

    def throttle(
        self, api: str, ms: int, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Inject a fault: responses have ``throttle_time_ms`` of ``ms``, and the connection is muted for as long.

        Responses of an API without that field are sent unchanged; the connection is muted nevertheless.
        """
        return self.add("throttle", api=api, ms=ms, topic=topic, client_id=client_id, **limits)

    def half_response(
        self, api: str, *, topic: str | None = None, client_id: str | None = None, **limits: Any
    ) -> FaultHandle:
        """Inject a fault: the node handles the request, sends half of its response, and closes the connection."""
        return self.add("half_response", api=api, topic=topic, client_id=client_id, **limits)

    def disk_full(self, directory: str | None = None, **limits: Any) -> FaultHandle:
        """Inject a fault: writes to all files, or to those below ``directory``, fail as on a full disk.

        Log directories with such a write go offline. Files can still be created.
        """
        path = None if directory is None else os.path.abspath(directory)
        return self.add("disk_full", directory=path, **limits)

    def list(self) -> list[FaultHandle]:
        """Return handles of the faults that are injected at present."""
        return [FaultHandle(self.connection, each) for each in self.connection.call("GET", "/faults")["faults"]]

    def clear(self) -> None:
        """Remove all faults from the node."""
        self.connection.call("POST", "/faults/remove", {})


class NodeClock:
    """Clock of a node: the machine's clock plus an offset that `advance` increases; a restart resets the offset.

    The controller of the node keeps the machine's clock, so that elections and broker sessions are not affected.
    """

    def __init__(self, connection: FaultConnection) -> None:
        self._connection = connection

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Advance the clock by the sum of the arguments; timers that become due fire at once.

        Raises:
            FaultRejected: the duration is negative or too long; FaultsDisabled: the node has no fault endpoint.
        """
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        self._connection.call("POST", "/clock/advance", {"ms": round(total_s * 1000 + milliseconds)})

    @property
    def offset_ms(self) -> int:
        """Offset of the node's clock from the machine's clock, in milliseconds."""
        return int(self._connection.call("GET", "/faults")["clock"]["offset_ms"])

    @property
    def now_ms(self) -> int:
        """Time of the node's clock, in milliseconds since 1970."""
        return int(self._connection.call("GET", "/faults")["clock"]["now_ms"])
