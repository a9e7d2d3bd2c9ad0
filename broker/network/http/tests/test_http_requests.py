"""Requests of the HTTP server: methods, targets, hosts, other sites, malformed heads."""

from __future__ import annotations

import pytest

from ottla.broker.network.http.http_messages import SECURITY_HEADERS, is_allowed_host
from ottla.broker.network.http.tests.http_fixture import BODY, exchange

HOST = b"Host: localhost\r\n"

FOLLOWED_LINK = b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /other HTTP/1.1\r\n" + HOST + b"\r\n", b"404 Not Found"),
        (b"GET /metrics/ HTTP/1.1\r\n" + HOST + b"\r\n", b"404 Not Found"),
        (b"GET /../metrics HTTP/1.1\r\n" + HOST + b"\r\n", b"404 Not Found"),
        (b"GET /%6detrics HTTP/1.1\r\n" + HOST + b"\r\n", b"404 Not Found"),
        (b"POST /other HTTP/1.0\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics?name[]=a&b=c HTTP/1.1\r\n" + HOST + b"\r\n", b"200 OK"),
        (b"GET /?x HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics#x HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET http://127.0.0.1:9308/metrics?x HTTP/1.1\r\n" + HOST + b"\r\n", b"200 OK"),
        (b"GET HTTP://a:9308 HTTP/1.1\r\nHost: a:9308\r\n\r\n", b"200 OK"),
        (b"GET http://a:9308/other HTTP/1.1\r\nHost: a:9308\r\n\r\n", b"404 Not Found"),
        (b"GET http://[x/metrics HTTP/1.1\r\n" + HOST + b"\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\nHost: x\n\n", b"200 OK"),
        (b"\r\nGET /metrics HTTP/1.0\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Connection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n" + HOST, b"200 OK"),
        (b"POST /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"PUT /metrics HTTP/1.0\r\ncontent-length: 9\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"405 Method Not Allowed"),
        (b"OPTIONS /metrics HTTP/1.0\r\n\r\n", b"405 Method Not Allowed"),
        (b"TRACE / HTTP/1.0\r\n\r\n", b"405 Method Not Allowed"),
        (b"get /metrics HTTP/1.0\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"431 Request Header Fields Too Large"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: x\r\n" * 2000, b"431 Request Header Fields Too Large"),
        (b"GET /" + b"x" * 13_000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1 x\r\n\r\n", b"400 Bad Request"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.0\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400 Bad Request"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01", b"400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\n", b"505 HTTP Version Not Supported"),
    ],
)
@pytest.mark.parametrize("most_bytes", [7, 100_000])
def test_http_request_in_pieces_of_any_size_gets_its_status(
    request_bytes: bytes, status: bytes, most_bytes: int
) -> None:
    head, body = exchange(request_bytes, most_bytes)
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 " + status
    assert f"Content-Length: {len(body)}".encode() in head
    assert (body == BODY) == (status == b"200 OK")
    assert (b"\r\nAllow: GET, HEAD\r\n" in head) == status.startswith(b"405")
    assert b"\r\nConnection: close" in head
    for name, value in SECURITY_HEADERS:
        assert f"\r\n{name}: {value}".encode() in head


@pytest.mark.parametrize(("path", "status"), [(b"/metrics", b"200 OK"), (b"/other", b"404 Not Found")])
def test_http_head_request_gets_header_of_get_without_body(path: bytes, status: bytes) -> None:
    get, head = (exchange(method + b" " + path + b" HTTP/1.0\r\n\r\n") for method in (b"GET", b"HEAD"))
    assert head[0] == get[0]
    assert get[0].startswith(b"HTTP/1.1 " + status)
    assert get[1] != b""
    assert head[1] == b""


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"Host: evil.example", b"421"),
        (b"Host: EVIL.example:8090", b"421"),
        (b"Host: 127.0.0.1.evil.example", b"421"),
        (b"Host: localhost.evil.example", b"421"),
        (b"Host: a@b", b"421"),
        (b"Host: <script>", b"421"),
        (b"Host: node.test", b"200"),
        (b"Host: NODE.test.:9308", b"200"),
        (b"Host: kafka-1:9308", b"200"),
        (b"Host: 10.1.2.3:9308", b"200"),
        (b"Host: [::1]:9308", b"200"),
        (b"Host: localhost\r\nOrigin: http://localhost", b"200"),
        (b"Host: localhost:9308\r\nOrigin: http://localhost", b"403"),
        (b"Host: localhost\r\nOrigin: http://evil.example", b"403"),
        (b"Host: localhost\r\nOrigin: null", b"403"),
        (b"Host: localhost\r\nSec-Fetch-Site: cross-site", b"403"),
        (b"Host: localhost\r\nSec-Fetch-Site: same-site", b"403"),
        (b"Host: localhost\r\nSec-Fetch-Site: cross-site\r\n" + FOLLOWED_LINK, b"200"),
        (b"Host: localhost\r\nSec-Fetch-Site: same-site\r\n" + FOLLOWED_LINK, b"200"),
        (b"Host: evil.example\r\nSec-Fetch-Site: cross-site\r\n" + FOLLOWED_LINK, b"421"),
        (b"Host: localhost\r\nOrigin: null\r\nSec-Fetch-Site: cross-site\r\n" + FOLLOWED_LINK, b"403"),
        (
            b"Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe",
            b"403",
        ),
        (b"Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image", b"403"),
        (b"Host: localhost\r\nSec-Fetch-Site: same-origin", b"200"),
        (b"Host: localhost\r\nSec-Fetch-Site: none", b"200"),
    ],
)
def test_http_request_of_other_site_or_host_is_refused(fields: bytes, status: bytes) -> None:
    head, body = exchange(b"GET /metrics HTTP/1.1\r\n" + fields + b"\r\n\r\n", allowed=("node.test",))
    assert head.split(b" ")[1] == status
    assert (body == BODY) == (status == b"200")
    assert b"evil" not in body, "nothing of a refused request returns"
    assert b"<" not in body


def test_http_absolute_target_with_foreign_host_is_refused() -> None:
    head, _ = exchange(b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("name", ["", ":80", "a b", "[::1", "a:b", "a/b", "1.2.3.4.5", "a..b"])
def test_malformed_host_is_not_allowed(name: str) -> None:
    assert not is_allowed_host(name, ())


def test_http_form_of_another_site_is_refused() -> None:
    fields = b"Host: localhost\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n" + FOLLOWED_LINK
    head, _ = exchange(b"POST /metrics HTTP/1.1\r\n" + fields + b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
