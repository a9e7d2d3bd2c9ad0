"""HTTPS client for JWKS documents: certificate verification, timeouts and size limits."""

from __future__ import annotations

import os
import shutil
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
import trio

from ottla.client import http_client
from ottla.client.http_client import MAX_DOCUMENT_BYTES, HttpFetchError, http_get
from ottla.env.tls import TlsConfig, TlsStore
from ottla.runtime.real_env import RealEnv
from ottla.runtime.tests.certificate_authority import CertificateAuthority

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
DOCUMENT = b'{"keys": []}'
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(DOCUMENT), DOCUMENT)
PIECES = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b'6\r\n{"keys\r\n', b'6\r\n": []}\r\n0\r\n\r\n')
Responder = Callable[[Any], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def keys(authority: CertificateAuthority) -> TlsStore:
    return authority.issue("server", "/CN=localhost")


def responder(*chunks: bytes, pause_s: float = 0.0) -> Responder:
    """Return a responder that reads the request, sends chunks, and closes."""

    def respond(sock: Any) -> None:
        while (received := sock.recv(4096)) and not received.endswith(b"\r\n\r\n"):
            pass  # a client that disconnects early sends no more
        for chunk in chunks:
            sock.sendall(chunk)
            time.sleep(pause_s)

    return respond


@contextmanager
def serve_document(keys: TlsStore, respond: Responder | None = None) -> Iterator[int]:
    """Run a TLS server for one connection; yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.location)
    listener = create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as sock, context.wrap_socket(sock, server_side=True) as secured:
            (respond or responder(GOOD))(secured)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(60)


def fetch(port: int, tls: TlsConfig | None, host: str = "localhost") -> bytes:
    async def main() -> bytes:
        return await http_get(RealEnv(), f"https://{host}:{port}/keys?x=1", tls)

    return trio.run(main)


def trusting(authority: CertificateAuthority) -> TlsConfig:
    return TlsConfig(truststore=authority.truststore)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_http_get_returns_document(authority: CertificateAuthority, keys: TlsStore, host: str) -> None:
    with serve_document(keys) as port:
        assert fetch(port, trusting(authority), host) == DOCUMENT


def test_http_get_chunked_document_without_close_notify_is_returned(
    authority: CertificateAuthority, keys: TlsStore
) -> None:
    def respond(sock: Any) -> None:
        responder(*PIECES)(sock)
        os.close(sock.detach())  # without close_notify of TLS

    with serve_document(keys, respond) as port:
        assert fetch(port, trusting(authority)) == DOCUMENT


def test_http_get_unknown_authority_raises_http_fetch_error(keys: TlsStore, tmp_path: Path) -> None:
    with serve_document(keys) as port, pytest.raises(HttpFetchError, match=r"(?i)certificate"):
        fetch(port, trusting(CertificateAuthority(tmp_path)))


def test_http_get_without_truststore_uses_system_authorities(keys: TlsStore) -> None:
    with serve_document(keys) as port, pytest.raises(HttpFetchError, match=r"(?i)certificate"):
        fetch(port, None)


def test_http_get_certificate_of_other_host_raises_http_fetch_error(authority: CertificateAuthority) -> None:
    elsewhere = authority.issue("elsewhere", "/CN=localhost", alt="DNS:keys.example.org")
    with serve_document(elsewhere) as port, pytest.raises(HttpFetchError, match=r"(?i)localhost"):
        fetch(port, trusting(authority))


def test_http_get_missing_truststore_raises_http_fetch_error(keys: TlsStore) -> None:
    with serve_document(keys) as port, pytest.raises(HttpFetchError, match="gone"):
        fetch(port, TlsConfig(truststore=TlsStore("/gone")))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n", "status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no HTTP"),
        (b"SSH-2.0\r\n", "no HTTP"),
        (b"", "no HTTP"),
    ],
)
def test_http_get_invalid_response_raises_http_fetch_error(
    authority: CertificateAuthority, keys: TlsStore, answer: bytes, why: str
) -> None:
    with serve_document(keys, responder(answer)) as port, pytest.raises(HttpFetchError, match=why):
        fetch(port, trusting(authority))


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b""])
def test_http_get_endless_response_raises_http_fetch_error(
    authority: CertificateAuthority, keys: TlsStore, begins: bytes
) -> None:
    endless = responder(begins, *[bytes(MAX_DOCUMENT_BYTES // 8)] * 12)
    with serve_document(keys, endless) as port, pytest.raises(HttpFetchError, match="more than"):
        fetch(port, trusting(authority))


def test_http_get_slow_response_times_out(
    authority: CertificateAuthority, keys: TlsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "TIMEOUT_S", 0.3)
    with (
        serve_document(keys, responder(*[b"x"] * 20, pause_s=0.1)) as port,
        pytest.raises(HttpFetchError, match="no response"),
    ):
        fetch(port, trusting(authority))


def test_http_get_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "TIMEOUT_S", 0.2)
    with create_server(("127.0.0.1", 0)) as silent, pytest.raises(HttpFetchError, match="no response"):
        fetch(silent.getsockname()[1], TlsConfig())


@pytest.mark.parametrize("url", ["collector:4318", "ftp://localhost/", "http://localhost:99999/", "http://[::1"])
def test_http_get_invalid_url_raises_http_fetch_error(url: str) -> None:
    async def main() -> None:
        with pytest.raises(HttpFetchError, match="URL"):
            await http_get(RealEnv(), url)

    trio.run(main)
