"""Requests and responses of the HTTP server, and the checks that each request passes.

Source: RFC 9110; Fetch Metadata Request Headers (W3C).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.%]+]|[0-9a-z_.-]+)(:[0-9]{1,5})?")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
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
"""Header fields of each response."""


class HttpRequest(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    """In origin form (``/metrics?x=y``) or in absolute form."""
    headers: Mapping[str, str]
    """By name in lower case."""

    @property
    def path(self) -> str:
        """The path of the target, without authority, query and fragment."""
        return split_target(self.target)[1]


class HttpResponse(NamedTuple):
    """A response."""

    status: HTTPStatus
    body: bytes | list[bytes]
    """The body, or its pieces."""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers a GET request of one path."""


def error_response(status: HTTPStatus, problem: str = "", headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    """Return the response of a refused request: the reason phrase, and what is wrong with the request."""
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
    """Return the host of ``HOST`` or ``HOST:PORT`` in lower case, without brackets; None if it is none."""
    found = _HOST.fullmatch(authority.lower())
    return None if found is None else found["name"].strip("[]").rstrip(".")


def is_allowed_host(authority: str, allowed: Collection[str]) -> bool:
    """Return whether a request may name this host.

    A page of another site reaches a node by DNS rebinding only through a name of its own domain, so IP addresses,
    ``localhost`` and names without a dot are allowed, and of the rest those in ``allowed``.
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


def check_request(request: HttpRequest, allowed_hosts: Collection[str]) -> HttpResponse | None:
    """Return the response that refuses a request of another site or with a foreign host; None if it passes."""
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
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return error_response(HTTPStatus.FORBIDDEN, "cross-site request")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
        return error_response(HTTPStatus.FORBIDDEN, "cross-origin request")
    return None
