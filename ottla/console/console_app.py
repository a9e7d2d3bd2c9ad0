"""HTTP application of the web console: routes, sessions, login, checks of each request, and error pages."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.config.limits import MAX_CONSOLE_LOGIN_BYTES, MAX_CONSOLE_STREAMS
from ottla.broker.network.http.http_messages import (
    HttpHandler,
    HttpRequest,
    HttpResponse,
    ResponseStream,
    error_response,
)
from ottla.broker.security.authn.listener_security import listener_setting
from ottla.broker.security.authn.ssl_principal_mapper import parse_mapping_rules
from ottla.console.frame_capture import ConnectionNumbers, FrameCaptures
from ottla.console.in_process import LocalNode, Principal, SessionClient
from ottla.console.leader_polls import LeaderPolls
from ottla.console.live_pace import LivePace
from ottla.console.login import PasswordLogin
from ottla.console.metadata_changes import MetadataChanges
from ottla.console.page import ConsoleNode, InvalidInput, PageHandler, PageRequest, Route, View, logger
from ottla.console.pages.routes import ACTIONS, PAGES
from ottla.console.rebalance_history import RebalanceHistory
from ottla.console.rendering import Templates, load_static_files
from ottla.console.schemas.schema_store import SchemaStore
from ottla.console.sessions import Session, SessionStore, is_valid_token, read_cookie
from ottla.console.traffic_history import TrafficHistory
from ottla.controller.config.config_keys import CONSOLE_SCHEMA_DIR, CONSOLE_SCHEMA_REGISTRY
from ottla.env.env import Env
from ottla.env.log_escaping import escape
from ottla.env.tls import TlsConfig
from ottla.jobs.supervision import is_broken_invariant
from ottla.jobs.task_timer import TaskTimer
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

LISTENER_NAME = "CONSOLE"
"""Name of the listener in settings: ``listener.name.console.``."""
HTML = "text/html; charset=utf-8"
KEEP_ALIVE_S = 10.0
"""Interval of comments in an idle event stream, by which a lost connection is detected."""
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    # With no-referrer, browsers send "Origin: null" with a form of the console itself.
    ("Referrer-Policy", "same-origin"),
)
_STATUS_BY_CODE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
}
NO_TLS_LOGIN = (
    "Login over plain HTTP is possible on loopback only. Set ottla.console.listener=https://HOST:PORT, or open the "
    "console on this machine."
)


class Console:
    """Web console of a running node: returns the handler of each HTTP request of `console_server`."""

    def __init__(self, env: Env, components: BrokerComponents, port: int, *, tls: TlsConfig | None) -> None:
        config = components.services.config
        names = {listener.name for listener in config.client_listeners}
        securities = [x.security for x in components.acceptors if x.listener in names]
        self.env = env
        port_of_clients = components.lifecycle.ports[config.client_listeners[0].name]
        traffic = TrafficHistory(env, components.replica_manager)
        self.node = ConsoleNode(
            LocalNode(components.services, port_of_clients),
            components,
            traffic,
            ConnectionNumbers(),
            FrameCaptures(),
            RebalanceHistory(env, components.groups),
            MetadataChanges(env),
            SchemaStore(env, config.values.get(CONSOLE_SCHEMA_DIR), config.values.get(CONSOLE_SCHEMA_REGISTRY)),
            LeaderPolls(env, components.purgatory),
        )
        self.sessions = SessionStore(env)
        requires_certificate = tls is not None and tls.client_auth == "required"
        self.login = PasswordLogin(env, securities, requires_certificate=requires_certificate)
        self.stream_count = 0
        self._is_secure = tls is not None
        rules = listener_setting(config.values, LISTENER_NAME)("ssl.principal.mapping.rules")
        self._certificate_name = parse_mapping_rules(rules or "DEFAULT")
        """Maps the subject of a client certificate to the name of its user; None if no rule applies."""
        self._cookie = f"ottla-console-{port}"
        """Name of the session cookie; it contains the port, since the ports of a host share their cookies."""
        self._templates = Templates()
        self._static = load_static_files()

    def find_handler(self, request: HttpRequest) -> HttpHandler | HttpResponse:
        """Return the handler of a request, or an error response instead (403, 404, 405).

        403: no rule maps the client certificate to a user. 404: no such change or live block; the handler of pages
        answers for other unknown paths. 405: the method is not GET, HEAD or POST.
        """
        path, method = request.path, request.method
        subject = request.certificate_subject
        if subject is not None and self._certificate_name(subject) is None:
            return error_response(HTTPStatus.FORBIDDEN, "no rule of ssl.principal.mapping.rules applies")
        if method == "POST":
            if path not in ACTIONS and path not in ("/login", "/logout"):
                return error_response(HTTPStatus.NOT_FOUND)
            return self._change
        if method not in ("GET", "HEAD"):
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD, POST"),))
        if path in self._static:
            return self._get_static
        if path.startswith("/live/"):
            route = PAGES.get(path.removeprefix("/live"))
            return error_response(HTTPStatus.NOT_FOUND) if route is None or route.live is None else self._get_live
        return self._get_page

    async def _get_static(self, request: HttpRequest) -> HttpResponse:
        body, media_type = self._static[request.path]
        return HttpResponse(HTTPStatus.OK, body, media_type, HEADERS)

    # ------------------------------------------------------------------ sessions

    def session_of(self, request: HttpRequest) -> Session:
        """Return the session of a request's cookie; one with a new id if it is malformed or its login has ended.

        Only logins are stored. Without a login its principal is that of the client certificate; without both anonymous.
        """
        session = self.sessions.find(read_cookie(request.headers.get("cookie", ""), self._cookie))
        if session.is_logged_in or request.certificate_subject is None:
            return session
        return session._replace(principal=f"User:{self._certificate_name(request.certificate_subject)}")

    def _cookie_field(self, session: Session) -> tuple[str, str]:
        secure = "; Secure" if self._is_secure else ""
        return "Set-Cookie", f"{self._cookie}={session.id}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _is_admitted(self, session: Session) -> bool:
        return session.is_logged_in or not self.login.is_required

    def _page_request(self, request: HttpRequest, session: Session, fields: Mapping[str, str]) -> PageRequest:
        client = SessionClient(self.node.local, Principal(session.principal, request.peer))
        return PageRequest(self.node, request, session, client, fields, {})

    def _allows_login(self, request: HttpRequest) -> bool:
        return self._is_secure or ip_address(request.peer.partition("%")[0]).is_loopback

    # ------------------------------------------------------------------ pages

    async def _get_page(self, request: HttpRequest) -> HttpResponse:
        session = self.session_of(request)
        if request.path == "/login":
            return self._login_page(request, session)
        if not self._is_admitted(session):
            return _redirect("/login")
        route = PAGES.get(request.path)
        if route is None:
            return self.respond(session, _error_view(HTTPStatus.NOT_FOUND, "There is no such page."))
        page = self._page_request(request, session, request.query)
        return await self._answer(route, page)

    async def _answer(self, route: Route, page: PageRequest) -> HttpResponse:
        """Call the handler of a page and return its response; an exception becomes an error page.

        An assertion that failed, which is a fault of the node, is raised.
        """
        try:
            view = await route.handler(page)
        except Exception as error:
            if is_broken_invariant(error):
                raise
            view = _view_of_error(error)
        if isinstance(view, View):
            return self.respond(page.session, view, page.request.target)
        if isinstance(view.body, bytes | list):
            return view
        response = view._replace(headers=(*HEADERS, *view.headers))
        return self.limit_streams(response, view.body, page.request, page.session)

    def limit_streams(
        self, response: HttpResponse, pieces: ResponseStream, request: HttpRequest, session: Session
    ) -> HttpResponse:
        """Return ``response`` with the stream ``pieces`` as body; 503 if `MAX_CONSOLE_STREAMS` are open."""
        if self.stream_count >= MAX_CONSOLE_STREAMS:
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "too many event streams and exports")
        return response._replace(body=_CountedStream(self, pieces, request, session))

    def has_session(self, request: HttpRequest, session: Session) -> bool:
        """Return False if ``session`` had a login that has ended: logout, time, changed credential; else True."""
        return self.session_of(request).is_logged_in == session.is_logged_in

    def respond(self, session: Session, view: View, target: str = "") -> HttpResponse:
        """Render a page and return it as a response that sets the cookie of the session."""
        values = self._values(session, view, target)
        body = self._templates.render(view.template, values)
        return HttpResponse(view.status, body, HTML, (*HEADERS, self._cookie_field(session)))

    def _values(self, session: Session, view: View, target: str) -> dict[str, Any]:
        path = target.partition("?")[0]
        route = PAGES.get(path)
        is_live = view.status is HTTPStatus.OK and route is not None and route.live is not None
        return {
            "node_id": self.node.local.node_id,
            "session": session,
            "login_required": self.login.is_required,
            "path": path,
            "live_source": f"/live{target}" if is_live else "",
            **view.values,
        }

    # ------------------------------------------------------------------ changes

    async def _change(self, request: HttpRequest) -> HttpResponse:
        session = self.session_of(request)
        if request.path in ("/login", "/logout"):
            if len(request.body) > MAX_CONSOLE_LOGIN_BYTES:
                return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif not self._is_admitted(session):
            return _redirect("/login")
        form = await run_in_background(self.env, request.parse_form())
        if not is_valid_token(session, form.get("csrf", "")):
            text = "The form does not belong to this session. Go back, reload the page and send the form again."
            return self.respond(session, _error_view(HTTPStatus.FORBIDDEN, text))
        if request.path == "/login":
            return await self._log_in(request, session, form)
        if request.path == "/logout":
            self.sessions.log_out(session)
            return _redirect("/login" if self.login.is_required else "/")
        return await self._answer(Route(ACTIONS[request.path]), self._page_request(request, session, form))

    def _login_page(self, request: HttpRequest, session: Session, problem: str = "") -> HttpResponse:
        if not self.login.is_required or session.is_logged_in:
            return _redirect("/")
        allowed = self._allows_login(request)
        if not allowed:
            problem = NO_TLS_LOGIN
        elif not self.login.mechanisms:
            allowed, problem = False, "No listener of this node verifies passwords: enable PLAIN or SCRAM."
        status = HTTPStatus.FORBIDDEN if problem else HTTPStatus.OK
        view = View("login.html", {"title": "Log in", "problem": problem, "allowed": allowed}, status)
        return self.respond(session, view)

    async def _log_in(self, request: HttpRequest, session: Session, form: Mapping[str, str]) -> HttpResponse:
        user, allowed = form.get("user", ""), self._allows_login(request)
        found = await self.login.verify(user, form.get("password", "")) if allowed else None
        audit_log = self.node.components.services.audit
        if found is None:
            if audit_log is not None:
                audit_log.log_authentication_failure(request.peer, "CONSOLE", "wrong user or password")
            logger.log(logging.INFO, "Failed login to the console: host = %s, user %s", request.peer, escape(user, 100))
            return self._login_page(request, session, "User or password is wrong." if allowed else NO_TLS_LOGIN)
        new = self.sessions.log_in(found.principal, found.is_valid)
        logger.info("Login to the console: Principal = %s from host = %s", found.principal, request.peer)
        return _redirect("/", self._cookie_field(new))

    # ------------------------------------------------------------------ live parts

    async def _get_live(self, request: HttpRequest) -> HttpResponse:
        session = self.session_of(request)
        if not self._is_admitted(session):
            return error_response(HTTPStatus.FORBIDDEN)
        events = self._live_events(request, session)
        response = HttpResponse(HTTPStatus.OK, events, "text/event-stream", HEADERS)
        return self.limit_streams(response, events, request, session)

    async def _live_events(self, request: HttpRequest, session: Session) -> AsyncGenerator[bytes, None]:
        """Yield a page's live block as a server-sent event after each change, until the login ends.

        An error becomes an event ``problem``. At the end the entry ``close`` of the page's memory is called.
        """
        page = self._page_request(request, session, request.query)
        try:
            async with aclosing(self._page_events(request, page)) as events:
                async for event in events:
                    yield event
        finally:
            page.memory.get("close", _do_nothing)()

    async def _page_events(self, request: HttpRequest, page: PageRequest) -> AsyncGenerator[bytes, None]:
        path = request.path.removeprefix("/live")
        route = PAGES[path]
        assert route.live is not None
        session = page.session
        last_view: View | None = None
        last, quiet_s, pace = "", 0.0, LivePace(route.live_s, self.env.monotonic_ms())
        timer = TaskTimer(self.env.monotonic_ms)
        while self.has_session(request, session):
            started_ms, is_flooded = self.env.monotonic_ms(), False
            try:
                view, html = await timer.run(self._live_block(page, route.live, path, last_view))
                if view is not last_view:
                    last_view, is_flooded = view, view.is_flooded
                    if html != last:
                        yield _event("live", html)
                        last, quiet_s = html, 0.0
            except Exception as error:
                if is_broken_invariant(error):
                    raise
                if last_view is not None or not last:
                    yield _event("problem", str(_view_of_error(error).values["text"]))
                last_view, last = None, " "  # the next block is sent even if it is the same
            if quiet_s >= KEEP_ALIVE_S:
                yield b": unchanged\n\n"
                quiet_s = 0.0
            pause_s = pace.next_pause_s(self.env.monotonic_ms(), timer.lap_ms() / 1000, is_flooded=is_flooded)
            await self.env.sleep(pause_s)
            if route.wait is not None:
                await route.wait(page)
            quiet_s += (self.env.monotonic_ms() - started_ms) / 1000

    async def _live_block(
        self, page: PageRequest, handler: PageHandler, path: str, last_view: View | None
    ) -> tuple[View, str]:
        """Return the view of a live block and its HTML, which is empty for the same view as the last one."""
        view = await handler(page)
        assert isinstance(view, View)
        if view is last_view:
            return view, ""
        return view, self._templates.render_block(view.template, "live", self._values(page.session, view, path))


class _CountedStream:
    """Response stream that counts in `Console.stream_count` until `aclose`; raises OSError once the login has ended."""

    def __init__(self, console: Console, pieces: ResponseStream, request: HttpRequest, session: Session) -> None:
        self._console = console
        self._pieces = pieces
        self._iterator = aiter(pieces)
        self._request = request
        self._session = session
        self._is_open = True
        console.stream_count += 1

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._iterator)
        if not self._console.has_session(self._request, self._session):
            raise OSError(errno.EACCES, "the session has ended")
        return piece

    async def aclose(self) -> None:
        """Close the iterator of the pieces and count the stream as closed; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._console.stream_count -= 1
            await self._pieces.aclose()


def _do_nothing() -> None:
    """Do nothing: the page has no resources to close."""


def _event(name: str, value: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode("utf-8", "replace")


def _redirect(to: str, *fields: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.SEE_OTHER, b"", HTML, (*HEADERS, ("Location", to), *fields))


def _error_text(error: Exception) -> str:
    if isinstance(error, ProtocolError):
        return error.message or error.code.text
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _error_view(status: HTTPStatus, text: str) -> View:
    return View("error.html", {"title": status.phrase, "text": text}, status)


def _view_of_error(error: Exception) -> View:
    """Return the error page of an exception: status 400, 403, 404; 502 if a broker is not reached; else 500, logged."""
    if isinstance(error, ProtocolError):
        status = _STATUS_BY_CODE.get(error.code, HTTPStatus.BAD_REQUEST)
        if error.code.name.endswith("AUTHORIZATION_FAILED"):
            status = HTTPStatus.FORBIDDEN
        return _error_view(status, _error_text(error))
    if isinstance(error, InvalidInput):
        return _error_view(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, (OSError, WireError)):
        return _error_view(HTTPStatus.BAD_GATEWAY, _error_text(error))
    logger.error("Page of the console failed", exc_info=error)
    return _error_view(HTTPStatus.INTERNAL_SERVER_ERROR, "The page failed; the log of the node has the error.")
