"""Trace of a Kafka connection through the proxy of ``ottla trace``: prints the fields of requests and responses.

Broker addresses in responses are replaced with addresses of the proxy, so that clients connect to the proxy only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.tools.dump import REDACTED, is_secret, to_json_value
from ottla.wire import field_dump
from ottla.wire.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.explain import format_comment
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestFrame, encode_response, parse_request
from ottla.wire.messages.headers import ResponseHeader
from ottla.wire.record_batch import batch_header

LINE_WIDTH = 140
Address = tuple[str, int]
AddressMapper = Callable[[Address], Address]
"""Function that maps a broker's address to the address of the proxy."""

_APIS_NAMING_BROKERS = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
)


@dataclass(slots=True)
class TracedRequest:
    """Forwarded request that awaits its response; ``at_ms`` is the monotonic time at which it was forwarded."""

    key: ApiKey
    version: int
    at_ms: float


def format_message(
    value: Any, version: int, indent: int = 1, name: str = "", explainer: field_dump.Explainer | None = None
) -> Iterator[str]:
    """Yield the fields of a message in a version, one line each; a small struct takes one line, an empty field none.

    Secrets are replaced. With an explainer each field has a line of its own, below its explanation.

    Args:
        value: the message, or the value of a field.
        version: API version.
        indent: depth of indentation, 4 spaces each.
        name: name of the field; empty for a message as a whole.
        explainer: explains each field once; None for no explanations.
    """
    pad = "    " * indent
    if isinstance(value, Message):
        fields = [(s.name, getattr(value, s.name)) for s in fields_of(type(value)) if version in s.versions]
        fields = [(n, v) for n, v in fields if v is not None and v != [] and v != "" and v != b""]
        fields = [(n, _redact(value, n, v)) for n, v in fields]
        texts = [f"{n}={_scalar(n, v)}" for n, v in fields if not isinstance(v, Message | list | memoryview)]
        line = f"{pad}{name}: {' '.join(texts)}"
        if name and explainer is None and len(texts) == len(fields) and len(line) <= LINE_WIDTH:
            yield line
            return
        if name:
            yield f"{pad}{name}:"
        for field, item in fields:
            if explainer is not None:
                text = explainer.explain_once(type(value), field)
                yield from format_comment(text, 4 * (indent + bool(name)), LINE_WIDTH)
            yield from format_message(item, version, indent + bool(name), field, explainer)
    elif isinstance(value, list) and value and isinstance(value[0], Message):
        for number, item in enumerate(value):
            yield from format_message(item, version, indent, f"{name}[{number}]", explainer)
    elif isinstance(value, memoryview) or (name == "records" and isinstance(value, bytes)):
        yield f"{pad}{name}: {_batches(value)}"
    else:
        yield f"{pad}{name}: {_scalar(name, value)}"


def _redact(message: Any, field: str, value: Any) -> Any:
    """Return the value of a message's field, with secrets replaced in the configs of a broker resource."""
    if field == "configs" and getattr(message, "resource_type", 0) == RESOURCE_BROKER:
        return [replace(x, value=REDACTED) if x.value is not None and is_secret(x.name) else x for x in value]
    return value


SECRET_FIELDS = ("auth_bytes", "salted_password", "hmac", "request_data", "response_data")
"""Fields with credentials; those of an Envelope may contain any of the others."""


def _scalar(name: str, value: Any) -> str:
    """Return the text of a plain value; error codes and API keys include their names, secrets only their size."""
    if name == "error_code" and value in tuple(ErrorCode):
        return f"{value}({ErrorCode(value).name})"
    if name == "api_key" and value in tuple(ApiKey):
        return f"{value}({ApiKey(value).name})"
    return f"({len(value)} bytes)" if name in SECRET_FIELDS else repr(to_json_value(value))


def _batches(raw: Buffer) -> str:
    """Return a text about record data: its size, and offsets, counts and attributes of its batches unless malformed."""
    try:
        headers = [header for _, header in batch_header.iterate_batches(raw)]
    except WireError:
        return f"{len(raw)} bytes that are no batches"
    parts = [
        f"offsets {h.base_offset}-{h.base_offset + h.last_offset_delta} "
        f"({h.records_count} records, {field_dump.describe_attributes(h.attributes)})"
        for h in headers
    ]
    return f"{len(raw)} bytes: " + "; ".join(parts)


def _map_addresses(value: Any, place: AddressMapper) -> bool:
    """Replace host and port in ``value``, a message, and its nested structs by those that ``place`` returns for them.

    Returns:
        True if the message has addresses.
    """
    found = False
    if isinstance(value, Message):
        if hasattr(value, "host") and hasattr(value, "port") and value.host:
            value.host, value.port = place((value.host, value.port))
            return True
        for field in value.__struct_fields__:
            found |= _map_addresses(getattr(value, field), place)
    elif isinstance(value, list):
        for item in value:
            found |= _map_addresses(item, place)
    return found


class ConnectionTrace:
    """Trace of one client connection through the proxy; frames have their 4 bytes of size.

    Args:
        connection_name: name of the connection in the output.
        place: maps broker addresses to those of the proxy.
        write_line: prints a line.
        show_bytes: print each field with its bytes.
        explainer: explains fields; None for no explanations.
    """

    def __init__(
        self,
        connection_name: str,
        place: AddressMapper,
        write_line: Callable[[str], None],
        *,
        show_bytes: bool,
        explainer: field_dump.Explainer | None = None,
    ) -> None:
        self._connection_name = connection_name
        self._place = place
        self._print = write_line
        self._bytes = show_bytes
        self._explainer = explainer
        self._pending: dict[int, TracedRequest] = {}

    def request(self, frame: bytes, now_ms: float) -> None:
        """Print a request frame, and store it until its response, unless it has none (Produce with acks=0).

        ``now_ms``: monotonic time. A frame that cannot be decoded is reported.
        """
        try:
            request = parse_request(memoryview(frame)[4:])
        except WireError as error:
            self._print(f"{self._connection_name} -> {len(frame)} bytes that cannot be read: {error}")
            return
        head = f"{self._connection_name} -> {request.key.name} v{request.version}"
        self._print(f"{head}  (number {request.correlation_id}, client {request.client_id!r}, {len(frame)} bytes)")
        body = self._request_body(request, frame)
        if not (request.key is ApiKey.PRODUCE and getattr(body, "acks", 1) == 0):
            self._pending[request.correlation_id] = TracedRequest(request.key, request.version, now_ms)

    def _request_body(self, request: RequestFrame, frame: bytes) -> Message | None:
        try:
            body, _ = compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)
            if self._bytes:
                self._spans(field_dump.request_spans(frame), frame)
            else:
                self._fields(body, request.version)
        except WireError as error:
            self._print(f"    {error}")
            return None
        return body

    def response(self, frame: bytes, now_ms: float) -> list[Any]:
        """Print a response frame; return the chunks of bytes to send to the client, with broker addresses replaced.

        ``now_ms``: monotonic time. The printed fields have the replaced addresses too, except with ``show_bytes``. A
        frame that cannot be decoded or has no pending request is reported and returned unchanged.
        """
        number = int.from_bytes(frame[4:8], "big", signed=True)
        traced = self._pending.pop(number, None)
        if traced is None:
            self._print(f"{self._connection_name} <- {len(frame)} bytes without a pending request (number {number})")
            return [frame]
        took_ms = now_ms - traced.at_ms
        name = f"{traced.key.name} v{traced.version}"
        self._print(f"{self._connection_name} <- {name}  (number {number}, {len(frame)} bytes, after {took_ms:.1f} ms)")
        try:
            return self._response_body(traced, number, frame)
        except WireError as error:
            self._print(f"    {error}")
            return [frame]

    def named_brokers(self, frame: bytes) -> list[Address]:
        """Return the broker addresses in a response frame; print nothing, and leave its request pending."""
        traced = self._pending.get(int.from_bytes(frame[4:8], "big", signed=True))
        if traced is None or traced.key not in _APIS_NAMING_BROKERS:
            return []
        found: list[Address] = []

        def note(address: Address) -> Address:
            found.append(address)
            return address

        try:
            _, pos = compiler.decode(ResponseHeader, response_header_version(traced.key, traced.version), frame, 4)
            _map_addresses(compiler.decode(response_class(traced.key), traced.version, frame, pos)[0], note)
        except WireError:
            pass
        return found

    def _response_body(self, traced: TracedRequest, number: int, frame: bytes) -> list[Any]:
        key, version = traced.key, traced.version
        view = memoryview(frame)
        if key is ApiKey.API_VERSIONS and int.from_bytes(frame[8:10], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        _, pos = compiler.decode(ResponseHeader, response_header_version(key, version), view, 4)
        body, _ = compiler.decode(response_class(key), version, view, pos)
        out: list[Any] = [frame]
        if key in _APIS_NAMING_BROKERS and _map_addresses(body, self._place):
            out = encode_response(key, version, number, body)
        if self._bytes:
            self._spans(field_dump.response_spans(key, version, frame), frame)
        else:
            self._fields(body, version)
        return out

    def _fields(self, body: Message, version: int) -> None:
        for line in format_message(body, version, explainer=self._explainer):
            self._print(line)

    def _spans(self, spans: list[field_dump.FieldSpan], frame: bytes) -> None:
        for line in field_dump.format_spans(spans, frame, explainer=self._explainer):
            self._print(line)
