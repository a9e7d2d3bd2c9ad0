"""Requests with one very long array, for every array of every request class at every depth.

The message classes are the schema, so an API that is added is covered without being listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from compat_tests.support.random_requests import LIKELY_VALUES
from ottla.broker.api_spec import ApiSpec
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.record_batch.record import NewRecord
from ottla.wire.record_batch.records import build_batch

NO_VALUES: Mapping[str, Any] = MappingProxyType({})
BATCH = build_batch([NewRecord(b"k", b"v", 10**12)])
KINDS = ("distinct", "equal", "empty")
"""Elements with different names and numbers, equal elements with valid values, and elements with default values."""
NUMBERS = {"int16": 2**15, "uint16": 2**16, "int32": 2**31, "uint32": 2**32, "int64": 2**63}
FIXED_VALUES: dict[str, Any] = {
    "validate_only": True,
    "replicas": 1,
    "session_epoch": -1,
    "member_epoch": 0,
    "share_session_epoch": -1,
    "max_wait_ms": 0,
    "cluster_id": None,
    "group_id": "long",
    "member_id": "",
    "protocol_type": "consumer",
    "filter_type": 2,
    "pattern_type_filter": 3,
    "resource_type_filter": 2,
    "permission_type": 3,
    "operation": 3,
    "resource_type": 2,
}
"""Values, by field name, that let a request pass the first checks and change no state for good."""


class RequestArray(NamedTuple):
    """Array field of a request class in one version."""

    key: ApiKey
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key.name} v{self.version} {'.'.join(self.path)}"


def array_paths(cls: type[Message], version: int) -> Iterator[tuple[str, ...]]:
    """Yield the path of every array that the version has, outer arrays first."""
    for spec in fields_of(cls):
        if version not in spec.versions:
            continue
        if spec.is_array:
            yield (spec.name,)
        if spec.struct is not None:
            yield from ((spec.name, *rest) for rest in array_paths(spec.struct, version))


def find_arrays(apis: Mapping[ApiKey, ApiSpec], key: ApiKey) -> list[RequestArray]:
    """Return every array of an API: in the newest version, and in the oldest where it has another shape there."""
    route, cls = apis[key], request_class(key)
    oldest = route.min_version if route.oldest_supported is None else route.oldest_supported
    newest = [RequestArray(key, route.max_version, path) for path in array_paths(cls, route.max_version)]
    known = {array.path for array in newest}
    flexible = spec_of(cls).flexible
    other_form = (oldest in flexible) != (route.max_version in flexible)
    for version in range(oldest, route.max_version):
        for path in array_paths(cls, version):
            if path not in known or (version == oldest and other_form):
                known.add(path)
                newest.append(RequestArray(key, version, path))
    return newest


def long_request(array: RequestArray, count: int, kind: str, known: Mapping[str, Any] = NO_VALUES) -> Message:
    """Return a request whose array has ``count`` elements; every other array on the way has one.

    ``known``: values of fields outside the long array that a node checks, such as the epoch of a broker.
    """
    return _struct(request_class(array.key), array.version, array.path, count, kind, None, known)


def _struct(
    cls: type[Message],
    version: int,
    path: tuple[str, ...],
    count: int,
    kind: str,
    number: int | None,
    known: Mapping[str, Any] = NO_VALUES,
) -> Message:
    values: dict[str, Any] = {}
    for spec in fields_of(cls):
        if version not in spec.versions:
            values[spec.name] = spec.default_value()
        elif spec.name in known and not spec.is_array:
            values[spec.name] = known[spec.name]
        elif path and spec.name == path[0]:
            values[spec.name] = _on_path(spec, version, path[1:], count, kind, known)
        else:
            values[spec.name] = _other_field(spec, version, kind, number)
    return cls(**values)


def _on_path(
    spec: FieldSpec, version: int, rest: tuple[str, ...], count: int, kind: str, known: Mapping[str, Any]
) -> Any:
    if not spec.is_array or rest:
        assert spec.struct is not None
        inner = _struct(spec.struct, version, rest, count, kind, None, known)
        return [inner] if spec.is_array else inner
    if kind != "distinct":
        return [_element(spec, version, kind, None, known if kind == "equal" else NO_VALUES)] * count
    return [_element(spec, version, kind, number) for number in range(count)]


def _element(spec: FieldSpec, version: int, kind: str, number: int | None, known: Mapping[str, Any] = NO_VALUES) -> Any:
    if spec.struct is not None:
        return _struct(spec.struct, version, (), 0, kind, number, known)
    return _scalar(spec.element, spec.name, kind, number)


def _other_field(spec: FieldSpec, version: int, kind: str, number: int | None) -> Any:
    """Return the value of a field that is not on the way to the long array."""
    if number is None and kind != "empty" and spec.name in FIXED_VALUES and not spec.is_array:
        value = FIXED_VALUES[spec.name]
        return value if value is not None or version in spec.nullable else spec.default_value()
    if spec.is_array:
        is_set_aside = LIKELY_VALUES.get(spec.name) == ()
        return [] if kind == "empty" or is_set_aside else [_element(spec, version, kind, number)]
    if spec.struct is not None:
        return None if version in spec.nullable else _struct(spec.struct, version, (), 0, kind, number)
    return _scalar(spec.kind, spec.name, kind, number)


def _scalar(kind: str, name: str, form: str, number: int | None) -> Any:
    known = LIKELY_VALUES.get(name) or (FIXED_VALUES.get(name),)
    match kind:
        case "bool":
            return FIXED_VALUES.get(name, False)
        case "float64":
            return 1.0
        case "uuid":
            return bytes(16) if number is None else number.to_bytes(16, "big")
        case "records":
            return b"" if form == "empty" else BATCH
        case "bytes":
            return b""
        case "string":
            if number is not None:
                return f"{name[0]}{number}"
            return next((x for x in known if isinstance(x, str)), "a") if form == "equal" else ""
        case "int8":
            return next((x for x in known if isinstance(x, int)), 0) if form != "empty" else 0
    if number is not None and name not in FIXED_VALUES:
        return number % NUMBERS[kind]
    return next((x for x in known if isinstance(x, int)), 0) if form != "empty" else 0
