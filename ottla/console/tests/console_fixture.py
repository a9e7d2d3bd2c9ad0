"""An embedded broker with its console, and a browser without scripts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlencode

import ottla
from compat_tests.support.processes import free_port

TIMEOUT_S = 120.0
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Form(NamedTuple):
    action: str
    method: str
    fields: dict[str, str]


class Markup(HTMLParser):
    """Strict reader: each element is closed in order, each id is unique, each control has a label."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.forms: list[Form] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        assert len(found) == len(attrs), f"an attribute comes twice: {attrs}"
        assert not any(name.startswith("on") or name == "style" for name in found), f"inline code: {attrs}"
        self.tags.append((tag, found))
        if tag == "form":
            self.forms.append(Form(found.get("action", ""), found.get("method", "get"), {}))
        is_sent = found.get("type") not in ("checkbox", "file") or "checked" in found
        if tag in ("input", "textarea", "select") and "form" in self._open and "name" in found and is_sent:
            self.forms[-1].fields[found["name"]] = found.get("value", "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def check(self) -> None:
        """Check the rules of HTML validators and screen readers."""
        ids = [found["id"] for _, found in self.tags if "id" in found]
        assert len(ids) == len(set(ids)), ids
        labelled = {found["for"] for tag, found in self.tags if tag == "label" and "for" in found}
        for tag, found in self.tags:
            for name in ("aria-labelledby", "aria-describedby"):
                assert name not in found or found[name] in ids, found
            is_field = tag in ("textarea", "select") or (
                tag == "input" and found.get("type") not in ("hidden", "checkbox")
            )
            assert not is_field or found.get("id") in labelled or "aria-label" in found, (tag, found)
            assert tag != "th" or found.get("scope") in ("col", "row"), found
            assert tag != "svg" or found.get("role") == "img", found
        assert [found["lang"] for tag, found in self.tags if tag == "html"] == ["en"]
        assert sum(tag == "h1" for tag, _ in self.tags) == 1
        assert sum(tag == "main" for tag, _ in self.tags) == 1


class Page(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def markup(self) -> Markup:
        return Markup(self.html)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.markup.text).split())

    def form(self, action: str) -> Form:
        return next(form for form in self.markup.forms if form.action == action)


class Browser:
    """Client with the cookies of one session."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.port = port
        self.host = host
        self.cookies: dict[str, str] = {}

    def request(
        self, method: str, path: str, body: str | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Page:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        fields = {"Host": f"{self.host}:{self.port}"}
        if self.cookies:
            fields["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, body, {**fields, **(headers or {})})
        response: HTTPResponse = connection.getresponse()
        page = Page(response.status, dict(response.getheaders()), response.read())
        connection.close()
        cookie = page.headers.get("Set-Cookie", "")
        if cookie:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return page

    def get(self, path: str, **headers: str) -> Page:
        page = self.request("GET", path, headers=headers)
        if page.status == 200 and page.headers["Content-Type"].startswith("text/html"):
            page.markup.check()
        return page

    def send(self, action: str, fields: Mapping[str, str], **headers: str) -> Page:
        page = self.request("POST", action, urlencode(fields), headers)
        if page.headers.get("Content-Type", "").startswith("text/html") and page.body:
            page.markup.check()
        return page

    def submit(self, form: Form, **fields: str) -> Page:
        return self.send(form.action, {**form.fields, **fields})

    def change(self, form: Form, **fields: str) -> tuple[Page, Page]:
        """Submit a form and its confirmation; return both pages."""
        confirmation = self.submit(form, **fields)
        assert confirmation.status == 200, confirmation.text
        return confirmation, self.submit(confirmation.form(form.action))

    def log_in(self, user: str, password: str) -> Page:
        return self.submit(self.get("/login").form("/login"), user=user, password=password)


def next_event(response: HTTPResponse, name: str = "") -> str:
    """Return the data of the next event, with a name that begins so, of a live page; keep-alive lines are no events."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (line := response.readline()).startswith(f"event: {name}".encode()):
        assert line, "the stream has ended"
        assert time.monotonic() < deadline_s, "no event"
    return str(json.loads(response.readline().removeprefix(b"data: ")))


class ConsoleFixture(NamedTuple):
    broker: ottla.Broker
    port: int

    def browser(self) -> Browser:
        return Browser(self.port)


@contextmanager
def console(settings: Mapping[str, Any] | None = None, **options: Any) -> Iterator[ConsoleFixture]:
    """Run a broker with a console."""
    port = free_port()
    every = {"ottla.console.listener": f"127.0.0.1:{port}", **(settings or {})}
    with ottla.Broker(settings=every, **options) as broker:
        yield ConsoleFixture(broker, port)
