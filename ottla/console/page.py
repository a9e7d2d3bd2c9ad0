"""Types of the console's page handlers: request, result and route; changes that the user must confirm."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.network.http.http_messages import HttpRequest, HttpResponse
from ottla.console.frame_capture import ConnectionNumbers, FrameCaptures
from ottla.console.in_process import LocalNode, SessionClient
from ottla.console.leader_polls import LeaderPolls
from ottla.console.metadata_changes import MetadataChanges
from ottla.console.rebalance_history import RebalanceHistory
from ottla.console.schemas.schema_store import SchemaStore
from ottla.console.sessions import Session
from ottla.console.traffic_history import TrafficHistory
from ottla.env.log_escaping import escape
from ottla.wire.errors import ErrorCode, ProtocolError

logger = logging.getLogger("ottla.console")

MAX_AUDIT_CHARS = 300


class ConsoleNode(NamedTuple):
    """Node of the console: access to its dispatcher and components, and what the console collects."""

    local: LocalNode
    components: BrokerComponents
    traffic: TrafficHistory
    connection_numbers: ConnectionNumbers
    frame_captures: FrameCaptures
    rebalances: RebalanceHistory
    metadata_changes: MetadataChanges
    schemas: SchemaStore
    leader_polls: LeaderPolls


class View(NamedTuple):
    """Page to render: template, its values, and HTTP status."""

    template: str
    values: Mapping[str, Any]
    status: HTTPStatus = HTTPStatus.OK
    is_flooded: bool = False
    """True for a live block that leaves something out, since more has come since the last update than it shows."""


class InvalidInput(Exception):
    """Raised for an invalid value in a form or query; the message is for the user."""


class PageRequest(NamedTuple):
    """HTTP request for a page or a change, with its session and a Kafka client of the session's principal."""

    node: ConsoleNode
    request: HttpRequest
    session: Session
    client: SessionClient
    fields: Mapping[str, str]
    """Fields of the posted form, or of the query of a page."""
    memory: dict[str, Any]
    """State that the handler of a live block keeps between updates; its entry ``close`` is called at the end."""

    def text(self, name: str) -> str:
        """Return the value of a required field of the form or query.

        Raises:
            InvalidInput: the field is missing or empty.
        """
        value = self.fields.get(name, "")
        if not value:
            raise InvalidInput(f"{name}: a value is missing")
        return value

    def number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a field as a number from ``least`` to ``most``; ``default`` if the field is missing or empty.

        Raises:
            InvalidInput: the field is not a number, or out of range.
        """
        text = self.fields.get(name, "").strip()
        if not text:
            return default
        try:
            value = int(text) if len(text) < 20 else most + 1
        except ValueError:
            raise InvalidInput(f"{name}: {text[:40]} is not a number") from None
        if not least <= value <= most:
            raise InvalidInput(f"{name}: {text[:40]} is not between {least} and {most}")
        return value


PageHandler = Callable[[PageRequest], Awaitable[View | HttpResponse]]


class Route(NamedTuple):
    """Handler of a page, and handler of its live block."""

    handler: PageHandler
    live: PageHandler | None = None
    """Handler that returns the values of the template's block ``live``; None if the page has no live block."""
    live_s: float = 2.0
    """Interval between two updates of the live block in seconds."""
    wait: Callable[[PageRequest], Awaitable[None]] | None = None
    """Waits, after the interval, until the live block may have changed; None if it is to be updated at once."""


def split_entries(text: str, most: int, name: str) -> list[str]:
    """Return the lines of ``text`` that are not empty; ``name`` is the name of the field in the message.

    Raises:
        InvalidInput: there are more than ``most``, or more than twice as many with the empty ones.
    """
    parts = text.split("\n", 2 * most)
    lines = [line.rstrip("\r") for line in parts[: 2 * most] if line.strip()]
    if len(parts) > 2 * most or len(lines) > most:
        raise InvalidInput(f"too many {name} (limit {most})")
    return lines


def check(code: int, message: str | None, subject: str) -> None:
    """Check an error code of a response; do nothing if it is 0.

    Raises:
        ProtocolError: the code is not 0. The text is ``subject: message``, without a message that of the code.
    """
    if code:
        try:
            known = ErrorCode(code)
        except ValueError:
            known = ErrorCode.UNKNOWN_SERVER_ERROR
        raise ProtocolError(known, f"{subject}: {message or known.text}")


class Change(NamedTuple):
    """Change of the cluster that the user must confirm: texts of the confirmation page, and function that makes it."""

    title: str
    """Title, such as ``Delete topic orders``."""
    consequences: list[str]
    """Consequences of the change, one sentence each."""
    button: str
    execute: Callable[[], Awaitable[str]]
    """Executes the change and returns a sentence about the result. Raises ProtocolError, OSError, WireError."""
    return_url: str
    """URL of the page to return to."""
    is_destructive: bool = False


async def confirm_and_execute(page: PageRequest, change: Change) -> View:
    """Return a page that asks for a confirmation, or make the change if the form has it, and return the result page.

    A change that is made, or fails, is logged with its principal.

    Raises:
        ProtocolError, OSError, WireError: the change failed.
    """
    if page.fields.get("confirmed") != "yes":
        kept = {name: value for name, value in page.fields.items() if name not in ("csrf", "confirmed")}
        values = {"title": change.title, "change": change, "action": page.request.path, "fields": kept}
        return View("confirm.html", values)
    result = "the request ended first; the change may have been made"
    try:
        done = await change.execute()
        result = "done"
    except Exception as error:
        result = f"failed: {error}"
        raise
    finally:
        audit(page, change.title, result)
    return View("done.html", {"title": change.title, "text": done, "back": change.return_url})


def audit(page: PageRequest, action: str, result: str) -> None:
    """Log a change with its principal, client address and result."""
    logger.info(
        "Change by console: Principal = %s from host = %s: %s: %s",
        page.session.principal,
        page.request.peer,
        escape(action, MAX_AUDIT_CHARS),
        escape(result, MAX_AUDIT_CHARS),
    )
