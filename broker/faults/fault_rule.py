"""Fault rules: which requests or writes a fault applies to, and how often; a pure state machine.

`FaultyDispatcher` and `FaultDisk` apply the faults.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.errors import ErrorCode

MAX_RULES = 1000
MAX_MS = 2**31 - 1
"""Longest delay or throttle: ``throttle_time_ms`` is an int32."""
_MASK = 2**64 - 1


class InvalidFault(Exception):
    """Raised for an invalid fault definition; the message is one line for the user."""


class FaultKind(StrEnum):
    """Effect of a fault on a request or a write."""

    ERROR = "error"
    """The response has an error code; the request is not handled."""
    DELAY = "delay"
    """The request is handled after a delay."""
    DISCONNECT = "disconnect"
    """The connection is closed without a response."""
    DROP = "drop"
    """The request gets no response; the connection remains open."""
    THROTTLE = "throttle"
    """The response has a throttle time, and the connection is muted for that time (KIP-219)."""
    HALF_RESPONSE = "half_response"
    """Half of the bytes of the response are sent, and the connection is closed."""
    DISK_FULL = "disk_full"
    """Writes to files fail with ENOSPC."""


class FaultLimits(NamedTuple):
    """Selection of the matching calls to which a fault applies; without limits, all of them."""

    times: int | None = None
    """Maximum number of calls to which the fault applies; None for no limit."""
    on_call: int | None = None
    """Number of the only matching call to which the fault applies, from 1; None for all."""
    probability: float = 1.0
    seed: int = 0
    """Seed of the random numbers for `probability`: the same seed selects the same calls."""


NO_LIMITS = FaultLimits()


class FaultSpec(NamedTuple):
    """Definition of a fault: effect, and the calls it applies to by API, topic, client id or directory."""

    kind: FaultKind
    api: ApiKey | None = None
    """API of the requests; None for `DISK_FULL`."""
    code: ErrorCode | None = None
    milliseconds: int = 0
    """Duration in ms of a delay or throttle."""
    topic: str | None = None
    client_id: str | None = None
    directory: str | None = None
    """For a full disk: directory below which writes fail, None for all; relative to the node's working directory."""
    handled: bool = False
    """For `DISCONNECT` and `DROP`: True if the request is handled, and only its response is lost."""


class FaultCall(NamedTuple):
    """Request or file write to which a fault may apply."""

    api: ApiKey | None = None
    client_id: str = ""
    topics: Callable[[], Iterable[str]] = tuple
    """Returns the topics that the request names; called only for a rule with a topic."""
    is_follower: Callable[[], bool] = bool
    """Returns True for a Fetch of a follower; called only for a rule without client id."""
    path: str = ""
    """Path of the file of a write; empty for a request."""


class _RandomNumbers:
    """Sequence of random numbers in [0, 1) that depends only on the seed (SplitMix64)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> float:
        """Return the next pseudo-random number in [0, 1); the same seed gives the same numbers (SplitMix64)."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / 2**53


class FaultRule:
    """Rule of a fault: definition, limits, and counters of the calls that matched and of those that got the fault."""

    def __init__(self, number: int, spec: FaultSpec, limits: FaultLimits) -> None:
        self.id = number
        self.spec = spec
        self._directory = "" if spec.directory is None else f"{os.path.abspath(spec.directory).rstrip('/')}/"
        self.calls = 0
        """Number of calls that matched the rule."""
        self.applied = 0
        """Number of calls to which the fault was applied."""
        self.set_limits(limits)

    def set_limits(self, limits: FaultLimits) -> None:
        """Replace the limits; the counters of calls are not reset, the random numbers start again from the seed."""
        self.limits = limits
        self._random = _RandomNumbers(limits.seed)

    def matches(self, call: FaultCall) -> bool:
        """Return True if the rule matches a call; a client id, topic or directory that it lacks matches any.

        The API must be that of the rule; a rule without API matches writes only.

        A Fetch of a follower matches only a rule that names its client id, so that faults for consumers do not stop
        replication.
        """
        spec = self.spec
        if spec.api is not call.api or (spec.client_id is not None and spec.client_id != call.client_id):
            return False
        if spec.client_id is None and call.is_follower():
            return False
        if self._directory and not f"{os.path.abspath(call.path)}/".startswith(self._directory):
            return False
        return spec.topic is None or spec.topic in call.topics()

    def count_call(self) -> bool:
        """Count a matching call; return True if the limits apply the fault to it."""
        self.calls += 1
        limits = self.limits
        if limits.times is not None and self.applied >= limits.times:
            return False
        if limits.on_call is not None and self.calls != limits.on_call:
            return False
        if limits.probability < 1 and self._random.next() >= limits.probability:
            return False
        self.applied += 1
        return True

    def describe(self) -> dict[str, Any]:
        """Return the rule and its counters as a JSON object."""
        spec, limits = self.spec, self.limits
        out: dict[str, Any] = {"id": self.id, "fault": spec.kind.value}
        out |= {} if spec.api is None else {"api": api_name(spec.api)}
        out |= {} if spec.code is None else {"code": spec.code.name}
        out |= {"ms": spec.milliseconds} if spec.kind in (FaultKind.DELAY, FaultKind.THROTTLE) else {}
        for name in ("topic", "client_id", "directory"):
            if (value := getattr(spec, name)) is not None:
                out[name] = value
        out |= {"handled": True} if spec.handled else {}
        out |= {} if limits.times is None else {"times": limits.times}
        out |= {} if limits.on_call is None else {"on_call": limits.on_call}
        out |= {} if limits.probability == 1 else {"probability": limits.probability, "seed": limits.seed}
        return {**out, "calls": self.calls, "applied": self.applied}


class FaultRules:
    """Rules that were added and not removed, in this order. Threads that write files choose among them, too."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._rules: dict[int, FaultRule] = {}
        self._last_id = 0

    def add(self, spec: FaultSpec, limits: FaultLimits = NO_LIMITS) -> FaultRule:
        """Add a fault and return its rule.

        Raises:
            InvalidFault: There are `MAX_RULES` already.
        """
        if len(self._rules) >= MAX_RULES:
            raise InvalidFault(f"more than {MAX_RULES} faults")
        self._last_id += 1
        rule = self._rules[self._last_id] = FaultRule(self._last_id, spec, limits)
        return rule

    def get(self, number: int) -> FaultRule:
        """Return the rule with an id.

        Raises:
            InvalidFault: It does not exist.
        """
        if number not in self._rules:
            raise InvalidFault(f"fault {number} does not exist")
        return self._rules[number]

    def remove(self, number: int) -> FaultRule:
        """Remove and return the rule with an id.

        Raises:
            InvalidFault: It does not exist.
        """
        rule = self.get(number)
        del self._rules[number]
        return rule

    def clear(self) -> None:
        """Remove all faults."""
        self._rules.clear()

    def choose(self, call: FaultCall) -> list[FaultRule]:
        """Return the rules whose faults apply to a call, oldest first; count it for each rule that matches."""
        if not self._rules:
            return []
        matching = [rule for rule in self.list() if rule.matches(call)]
        with self._counting:
            return [rule for rule in matching if rule.count_call()]

    def list(self) -> list[FaultRule]:
        """Return all rules, oldest first, including those whose limits are used up."""
        return [*self._rules.values()]


def api_name(key: ApiKey) -> str:
    """Return Kafka's name of an API, such as ``AddPartitionsToTxn``."""
    return request_class(key).__name__.removesuffix("Request")


def _parse_api(text: str) -> ApiKey:
    """Return the API for a name such as ``AddPartitionsToTxn`` or ``ADD_PARTITIONS_TO_TXN``.

    Raises:
        InvalidFault: The name is unknown.
    """
    wanted = text.replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key
    raise InvalidFault(f"unknown API: {text}")


def _parse_code(code: object) -> ErrorCode:
    """Return the error code for a name, in any case, or a number.

    Raises:
        InvalidFault: The error code is unknown or NONE.
    """
    name = str(code).upper()
    found = next((each for each in ErrorCode if name in (each.name, str(each.value))), None)
    if found is None or found is ErrorCode.NONE:
        raise InvalidFault(f"unknown error code: {code}")
    return found


_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("fault", "api", "code", "topic", "client_id", "directory"), str),
    **dict.fromkeys(("ms", "times", "on_call", "seed"), int),
    "handled": bool,
    "probability": float,
}
_FIELDS: Mapping[FaultKind, frozenset[str]] = {
    FaultKind.ERROR: frozenset({"api", "code", "topic", "client_id"}),
    FaultKind.DELAY: frozenset({"api", "ms", "topic", "client_id"}),
    FaultKind.DISCONNECT: frozenset({"api", "handled", "topic", "client_id"}),
    FaultKind.DROP: frozenset({"api", "handled", "topic", "client_id"}),
    FaultKind.THROTTLE: frozenset({"api", "ms", "topic", "client_id"}),
    FaultKind.HALF_RESPONSE: frozenset({"api", "topic", "client_id"}),
    FaultKind.DISK_FULL: frozenset({"directory"}),
}
_REQUIRED = frozenset({"api", "code", "ms"})
_LIMITS = frozenset(FaultLimits._fields)


def _check_types(raw: Mapping[str, Any]) -> None:
    """Check that the fields are known and have values of their types.

    Raises:
        InvalidFault: a field is unknown, or a value has another type.
    """
    for name, value in raw.items():
        kind = _TYPES.get(name)
        if kind is None:
            raise InvalidFault(f"unknown field: {name}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number if kind is float else type(value) is kind or (name == "code" and type(value) is int)):
            raise InvalidFault(f"{name}: {kind.__name__} expected: {value!r}")


def parse_limits(raw: Mapping[str, Any]) -> FaultLimits:
    """Return the limits in a JSON object; of the other fields of a fault only the types are checked.

    Raises:
        InvalidFault: A field is unknown or has another type, or the value of a limit is out of range.
    """
    _check_types(raw)
    limits = FaultLimits(**{name: value for name, value in raw.items() if name in _LIMITS})
    for name, value in (("times", limits.times), ("on_call", limits.on_call)):
        if value is not None and value < 1:
            raise InvalidFault(f"{name}: at least 1 expected: {value}")
    if not 0 <= limits.probability <= 1:
        raise InvalidFault(f"probability: number from 0 to 1 expected: {limits.probability}")
    return limits


def parse_fault(raw: Mapping[str, Any]) -> FaultSpec:
    """Return the fault definition in a JSON object; of the fields of its limits only the types are checked.

    `parse_limits` reads these fields and checks their values.

    Raises:
        InvalidFault: A field is unknown, missing, invalid, or not allowed for this fault.
    """
    _check_types(raw)
    try:
        kind = FaultKind(raw.get("fault", ""))
    except ValueError:
        raise InvalidFault(f"unknown fault: {raw.get('fault', '')}; one of {', '.join(FaultKind)}") from None
    allowed = _FIELDS[kind]
    for name in raw:
        if name not in allowed and name not in _LIMITS and name != "fault":
            raise InvalidFault(f"{kind} has no {name}")
    missing = sorted((allowed & _REQUIRED) - raw.keys())
    if missing:
        raise InvalidFault(f"{kind} needs {', '.join(missing)}")
    if not 0 <= raw.get("ms", 0) <= MAX_MS:
        raise InvalidFault(f"ms: number from 0 to {MAX_MS} expected: {raw['ms']}")
    return FaultSpec(
        kind,
        _parse_api(raw["api"]) if "api" in raw else None,
        _parse_code(raw["code"]) if "code" in raw else None,
        raw.get("ms", 0),
        raw.get("topic"),
        raw.get("client_id"),
        raw.get("directory"),
        raw.get("handled", False),
    )
