"""Attacks on the console: other sites, markup in names, slow and many clients; login and permissions."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from ottla.broker.config.limits import MAX_CONSOLE_BODY_BYTES, MAX_CONSOLE_STREAMS
from ottla.console.tests.console_fixture import Browser, ConsoleFixture, console

pytestmark = pytest.mark.xdist_group(__name__)
JAAS = (
    'x.PlainLoginModule required username="admin" password="admin-secret" user_admin="admin-secret" '
    'user_alice="alice-secret";'
)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 1)
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


def test_pages_have_a_policy_without_inline_code_and_other_hosts(browser: Browser) -> None:
    headers = browser.get("/").headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]


def test_markup_in_names_and_addresses_is_shown_as_text(browser: Browser) -> None:
    for path in (f"/topics?q={HOSTILE}", f"/topic?name={HOSTILE}", f"/topic/setting?name=orders&key={HOSTILE}"):
        page = browser.request("GET", path.replace("<", "%3C").replace(">", "%3E"))
        assert "<script>alert" not in page.html
        assert "&lt;script&gt;" in page.html
    form = browser.get("/topic/new").form("/topic/new")
    page = browser.submit(form, name="fine", settings=f"retention.ms={HOSTILE}")
    assert "<script>alert" not in page.html


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "attacker.example:80", "Origin": "http://attacker.example:80"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/topics", "/live/", "/static/console.js"])
def test_request_of_another_site_is_refused(browser: Browser, headers: dict[str, str], path: str) -> None:
    assert browser.request("GET", path, headers=headers).status in (403, 421)
    form = browser.get("/topic?name=orders").form("/topic/delete")
    assert browser.send(form.action, {**form.fields, "confirmed": "yes"}, **headers).status in (403, 421)
    assert browser.get("/topic?name=orders").status == 200


def test_change_without_the_token_of_the_session_is_refused(running: ConsoleFixture, browser: Browser) -> None:
    form = browser.get("/topic?name=orders").form("/topic/delete")
    other = running.browser()
    token = other.get("/topic?name=orders").form("/topic/delete").fields["csrf"]
    for wrong in ("", "0" * 64, token, "é", form.fields["csrf"] + "0"):
        assert browser.submit(form, csrf=wrong, confirmed="yes").status == 403
    without_cookie = running.browser()
    assert without_cookie.submit(form, confirmed="yes").status == 403
    assert browser.get("/topic?name=orders").status == 200


def test_body_beyond_the_limit_is_refused_and_too_many_fields_count_as_none(browser: Browser) -> None:
    page = browser.request("POST", "/topic/new", b"x" * (MAX_CONSOLE_BODY_BYTES + 1))
    assert page.status == 413
    assert browser.request("POST", "/login", b"a=" + b"%41" * 30_000).status == 413
    token = browser.get("/topic/new").form("/topic/new").fields["csrf"]
    lines = {"csrf": token, "name": "orders", "settings": "a=b\n" * 100_000, "headers": "\n" * 100_000}
    for action in ("/topic/new", "/records/produce"):
        page = browser.send(action, lines)
        assert (page.status, "(limit 50)" in page.text) == (400, True)
    fields = {f"f{n}": "" for n in range(300)}
    assert browser.send("/topic/new", fields).status == 403


def test_thousand_silent_connections_do_not_keep_out_a_request(running: ConsoleFixture, browser: Browser) -> None:
    streams = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    try:
        for _ in range(1000):
            stream = socket.create_connection(("127.0.0.1", running.port))
            streams.append(stream)
        assert browser.get("/topics").status == 200
    finally:
        for stream in streams:
            stream.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_event_streams_beyond_the_limit_are_refused(running: ConsoleFixture, browser: Browser) -> None:
    streams = []
    try:
        for _ in range(MAX_CONSOLE_STREAMS):
            stream = socket.create_connection(("127.0.0.1", running.port))
            stream.sendall(b"GET /live/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stream.recv(15).startswith(b"HTTP/1.1 200")
            streams.append(stream)
        assert browser.request("GET", "/live/").status == 503
        assert browser.get("/").status == 200
    finally:
        for stream in streams:
            stream.close()


def test_sessions_that_are_not_logged_in_are_not_kept(running: ConsoleFixture) -> None:
    ids = set()
    for _ in range(20):
        browser = running.browser()
        browser.get("/topics")
        ids |= set(browser.cookies.values())
    assert len(ids) == 20


# ---------------------------------------------------------------------- login and permissions


@pytest.fixture(scope="module")
def secured() -> Iterator[ConsoleFixture]:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with console(settings) as made:
        admin = made.browser()
        admin.log_in("admin", "admin-secret")
        admin.change(admin.get("/topic/new").form("/topic/new"), name="secret", partitions="1")
        yield made


def test_pages_and_changes_need_a_login(secured: ConsoleFixture) -> None:
    browser = secured.browser()
    for path in ("/", "/topics", "/topic?name=secret", "/frames?connection=1"):
        page = browser.get(path)
        assert (page.status, page.headers.get("Location"), page.body) == (303, "/login", b"")
    assert browser.get("/live/").status == 403
    token = browser.get("/login").form("/login").fields["csrf"]
    page = browser.send("/topic/delete", {"csrf": token, "name": "secret", "confirmed": "yes"})
    assert page.headers.get("Location") == "/login"


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("absent", "admin-secret"), ("admin", ""), ("a\0b", "x"), ("é", "é")]
)
def test_wrong_password_gives_no_session(secured: ConsoleFixture, user: str, password: str) -> None:
    browser = secured.browser()
    page = browser.log_in(user, password)
    assert (page.status, "User or password is wrong." in page.text) == (403, True)
    assert browser.get("/topics").status == 303


def test_login_gives_a_new_session_id_and_logout_ends_it(secured: ConsoleFixture) -> None:
    browser = secured.browser()
    browser.get("/login")
    before = dict(browser.cookies)
    assert browser.log_in("admin", "admin-secret").headers["Location"] == "/"
    assert browser.cookies != before
    page = browser.get("/topics?q=secret")
    assert "User:admin" in page.text
    kept = dict(browser.cookies)
    browser.submit(page.form("/logout"))
    browser.cookies = kept
    assert browser.get("/topics").status == 303


def test_user_without_permissions_sees_and_changes_nothing(secured: ConsoleFixture) -> None:
    browser = secured.browser()
    browser.log_in("alice", "alice-secret")
    assert "No topics." in browser.get("/topics").text
    assert "needs DESCRIBE on the cluster" in browser.get("/").text
    assert "need ALTER on the cluster" in browser.get("/frames?connection=1").text
    assert browser.get("/topic?name=secret").status in (403, 404)
    form = browser.get("/topic/new").form("/topic/new")
    assert browser.submit(form, name="mine", partitions="1").status == 403
    assert browser.submit(form, name="mine", partitions="1", confirmed="yes").status == 403
    token = form.fields["csrf"]
    for action, fields in (
        ("/topic/delete", {}),
        ("/topic/partitions", {"total": "5"}),
        ("/topic/setting", {"key": "retention.ms", "value": "1"}),
        ("/topic/delete-records", {"before": "0"}),
    ):
        page = browser.send(action, {"csrf": token, "name": "secret", "confirmed": "yes", **fields})
        assert page.status in (400, 403, 404), (action, page.text)
    admin = secured.browser()
    admin.log_in("admin", "admin-secret")
    assert "retention.ms 604800000 default" in admin.get("/topic?name=secret").text
