"""Requests and responses of the HTTP server, and the host and origin checks of each request.

Source: RFC 9110; Fetch Metadata Request Headers (W3C).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from ottla.broker.config.limits import MAX_HTTP_FORM_FIELDS
from ottla.jobs.job import Job

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.%]+]|[0-9a-z_.-]+)(:[0-9]{1,5})?")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_UNQUOTE_BYTES = 16 * 1024
"""Part of a form that is decoded without a pause."""
TEXT = "text/plain; charset=utf-8"
SECURITY_HEADERS = (
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Security header fields of each response."""


class HttpRequest(NamedTuple):
    """HTTP request: method, target, header fields, client address and body."""

    method: str
    target: str
    """Request target in origin form (``/metrics?x=y``) or absolute form."""
    headers: Mapping[str, str]
    """Header fields by name in lower case."""
    peer: str = ""
    """IP address of the client."""
    body: bytes = b""
    """Body of the request; empty if the server reads no bodies (`HttpLimits.body_bytes` is 0)."""
    on_disconnect: Callable[[Callable[[], None]], None] | None = None
    """Registers a callback for the client's disconnection, for responses without an end."""
    certificate_subject: str | None = None
    """Subject of the client's certificate, which the listener trusts; None without one."""

    @property
    def path(self) -> str:
        """Path of the target, without authority, query and fragment."""
        return split_target(self.target)[1]

    @property
    def query(self) -> dict[str, str]:
        """Fields of the query; the last value of a repeated field."""
        return parse_fields(self.target.partition("?")[2].partition("#")[0])

    def parse_form(self) -> Job[dict[str, str]]:
        """Return the fields of a form in the body, as a job: the last value of each; none if there are too many."""
        fields: dict[str, str] = {}
        parts = self.body.split(b"&", MAX_HTTP_FORM_FIELDS)
        if len(parts) > MAX_HTTP_FORM_FIELDS:
            return fields
        for part in filter(None, parts):
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            key = yield from _unquote(name)
            fields[key] = yield from _unquote(value)
        return fields


def _unquote(raw: bytes) -> Job[str]:
    """Decode percent-encoded text, as a job."""
    out, start = bytearray(), 0
    while start < len(raw):
        end = start + _UNQUOTE_BYTES
        cut = raw.find(b"%", max(end - 2, start), end)  # an escape that is not complete belongs to the next piece
        end = end if cut <= start else cut
        out += unquote_to_bytes(raw[start:end])
        start = end
        yield None
    return out.decode("utf-8", "replace")


def parse_fields(text: str) -> dict[str, str]:
    """Return the fields of a query or form, the last value of each; empty for more than `MAX_HTTP_FORM_FIELDS`."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_HTTP_FORM_FIELDS))
    except ValueError:
        return {}


class ResponseStream(Protocol):
    """Body of an HTTP response as an asynchronous iterator of pieces, which are made while the response is sent."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the iterator of the pieces of the body."""
        ...

    async def aclose(self) -> None:
        """End the stream; the server calls it for each response, also where no piece was taken."""
        ...


class HttpResponse(NamedTuple):
    """HTTP response: status, body, content type and additional header fields."""

    status: HTTPStatus
    body: bytes | list[bytes] | ResponseStream
    """The body, its pieces, or pieces that are made while the response is sent."""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    """Additional header fields; they replace those of `SECURITY_HEADERS` with the same name."""

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Header fields of the response, without those that give the length of the body."""
        own = {name for name, _ in self.headers}
        standard = [field for field in SECURITY_HEADERS if field[0] not in own]
        return [("Content-Type", self.content_type), *standard, *self.headers]


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Function that returns the response to a request."""
HttpRouter = Callable[[HttpRequest], HttpHandler | HttpResponse]
"""Function that returns the handler of a request, or an error response."""


def route_by_path(handlers: Mapping[str, HttpHandler]) -> HttpRouter:
    """Return a router of GET and HEAD requests by path to ``handlers``; 404 for other paths, 405 for other methods."""

    def find(request: HttpRequest) -> HttpHandler | HttpResponse:
        handler = handlers.get(request.path)
        if handler is None:
            return error_response(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD"),))
        return handler

    return find


def error_response(status: HTTPStatus, problem: str = "", headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    """Return a text response: the reason phrase of the status and, if not empty, ``problem``.

    ``headers``: additional header fields.
    """
    text = f"{status.phrase}: {problem}\n" if problem else f"{status.phrase}\n"
    return HttpResponse(status, text.encode(), TEXT, headers)


def split_target(target: str) -> tuple[str, str]:
    """Return authority and path of a request target; the authority is empty in origin form.

    Raises:
        ValueError: the target is no URL, or has control characters.
    """
    if _CONTROL.search(target):
        raise ValueError("control character in the request target")
    if target.startswith("/"):
        return "", re.split("[?#]", target, maxsplit=1)[0]
    parts = urlsplit(target)
    return parts.netloc, parts.path or "/"


def host_name(authority: str) -> str | None:
    """Return the host of ``HOST`` or ``HOST:PORT`` in lower case, without brackets and final dot; None if malformed."""
    found = _HOST.fullmatch(authority.lower())
    return None if found is None else found["name"].strip("[]").rstrip(".")


def is_allowed_host(authority: str, allowed: Collection[str]) -> bool:
    """Return True if a request may name the host of ``authority`` (``HOST`` or ``HOST:PORT``).

    This protects against DNS rebinding, which uses a name of the attacker's own domain: so IP addresses, names
    without a dot and names that end in ``.localhost`` are allowed, and of other names those in ``allowed``.
    """
    name = host_name(authority)
    if name is None:
        return False
    if "." not in name and ":" not in name:
        return name != ""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name in allowed or name.endswith(".localhost")
    return True


def _is_followed_link(request: HttpRequest) -> bool:
    """Return True if a browser sent the request to show a page, such as by a link on another site."""
    fields = request.headers
    return (
        request.method in ("GET", "HEAD")
        and fields.get("sec-fetch-mode") == "navigate"
        and fields.get("sec-fetch-dest") == "document"
    )


def check_request(request: HttpRequest, allowed_hosts: Collection[str]) -> HttpResponse | None:
    """Return the error response to a malformed target, a host not allowed, or a request by another site; else None.

    A request of another origin of the same site is refused too; a link on another site may be followed.
    """
    try:
        authority, _ = split_target(request.target)
    except ValueError as error:
        return error_response(HTTPStatus.BAD_REQUEST, str(error))
    host = request.headers.get("host")
    for name in (authority, host):
        if name and not is_allowed_host(name, allowed_hosts):
            return error_response(
                HTTPStatus.MISDIRECTED_REQUEST, "host not allowed; add it to ottla.http.allowed.hosts"
            )
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_followed_link(request):
        return error_response(HTTPStatus.FORBIDDEN, "cross-site request")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
        return error_response(HTTPStatus.FORBIDDEN, "cross-origin request")
    return None
