"""Error responses of whole requests with one error code, and response rows with an error code.

Their layout is `ottla.broker.api_spec.ErrorResponse`; classes and versions of the fields are those of the messages.

Source: the ``getErrorResponse`` of each request class in ``clients``, ``ApiError.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import GeneratorType
from typing import Any, Protocol, TypeVar

from ottla.broker.api_spec import ApiSpec, ErrorMessage, ErrorResults
from ottla.jobs.job import Job
from ottla.wire.api_keys import response_class
from ottla.wire.codec.response_array import ResponseArray
from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.errors import ErrorCode, ProtocolError


class RespondableRequest(Protocol):
    """Interface of a request for which an error response can be built; implemented by `RequestContext`."""

    version: int

    @property
    def spec(self) -> ApiSpec:
        """Registry entry of the request's API."""


C = TypeVar("C", bound=RespondableRequest)
R = TypeVar("R")


class ErrorResultBuilder:
    """Builder of response rows with one error code for elements of a request, such as topics."""

    def __init__(
        self, response: type[Message], layout: ErrorResults, version: int, code: ErrorCode, message: str | None
    ) -> None:
        """Select the class of the rows of ``response`` and the row's fields in ``version``."""
        row_class = next(field.struct for field in fields_of(response) if field.name == layout.response_list)
        assert row_class is not None, f"{response.__name__}.{layout.response_list} has no rows"
        self._row_class = row_class
        self._layout = layout
        self._copied = tuple(zip(layout.copied, layout.copied_from or layout.copied, strict=True))
        self._values = _fields_in_version(row_class, version, code, message, layout.values)
        nested = layout.nested
        self._nested = None if nested is None else ErrorResultBuilder(row_class, nested, version, code, message)

    def build(self, element: Any) -> Job[Any]:
        """Return the response row with the error code for an element of the request, with nested rows, as a job."""
        row = self._row_class()
        for name, source in self._copied:
            setattr(row, name, getattr(element, source) if isinstance(element, Message) else element)
        for name, value in self._values:
            setattr(row, name, value)
        nested = self._nested
        if nested is not None:
            rows = getattr(row, nested._layout.response_list)
            for part in getattr(element, nested._layout.request_list):
                rows.append((yield from nested.build(part)))
        yield None
        return row


def build_error_response(
    context: RespondableRequest, request: Any, code: ErrorCode, message: str | None = None
) -> Job[Message]:
    """Return the response to a whole request with one error code, in the fields and rows of the API's layout, as a job.

    A layout may have no rows. ``message``: its error message, None for none; some layouts have the text of the error
    code instead, always or if it is None, others no message at all.
    """
    layout, version = context.spec.error_response, context.version
    if layout.message is not ErrorMessage.REASON:
        text = None if layout.message is ErrorMessage.NONE else code.text
        message = (message or text) if layout.message is ErrorMessage.REASON_OR_TEXT else text
    cls = response_class(context.spec.key)
    response = cls()
    for name, value in _fields_in_version(cls, version, code, message, layout.values):
        setattr(response, name, value)
    named: set[str] = set()
    for rows in () if layout.results_only_for_denied else layout.results:
        builder, out = ErrorResultBuilder(cls, rows, version, code, message), getattr(response, rows.response_list)
        parents = (request,) if rows.request_parent is None else getattr(request, rows.request_parent)
        for parent in parents:
            for element in getattr(parent, rows.request_list) or ():
                row = yield from builder.build(element)
                if layout.has_unique_results:
                    name = getattr(row, rows.copied[0])
                    if name in named:
                        continue
                    named.add(name)
                out.append(row)
            yield None
    return response


def with_error_response(handler: Callable[[C, R], Any]) -> Callable[[C, R], Job[Any]]:
    """Decorate a handler: a `ProtocolError` that it or its job raises becomes the error response of the request.

    The decorated handler always returns a job.
    """

    @wraps(handler)
    def respond(asking: C, request: R) -> Job[Any]:
        try:
            result = handler(asking, request)
            return (yield from result) if isinstance(result, GeneratorType) else result
        except ProtocolError as error:
            return (yield from build_error_response(asking, request, error.code, error.message))

    return respond


def _fields_in_version(
    cls: type[Message], version: int, code: ErrorCode, message: str | None, values: Iterable[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Return names and values of the error fields of a message class that exist in ``version``.

    ``values`` are further fields with their values. A value of None is left out unless the field is nullable.
    """
    every = {"error_code": code, "partition_error_code": code, "error_message": message, **dict(values)}
    return [
        (field.name, every[field.name])
        for field in fields_of(cls)
        if field.name in every
        and version in field.versions
        and (every[field.name] is not None or version in field.nullable)
    ]


def contains_error(answer: Message, code: ErrorCode) -> Job[bool]:
    """Return True if a response has the error code ``code``, at the top level or in a nested row, as a job.

    Only fields ``error_code`` and ``partition_error_code`` are searched, not ``acknowledge_error_code`` and others.
    Rows of a large array that are encoded already are not searched.
    """
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            if value == code:
                return True
        elif isinstance(value, list | ResponseArray):
            value = value.pending if isinstance(value, ResponseArray) else value
            if value and isinstance(value[0], Message):
                for row in value:
                    if (yield from contains_error(row, code)):
                        return True
                    yield None
        elif isinstance(value, Message) and (yield from contains_error(value, code)):
            return True
    return False
