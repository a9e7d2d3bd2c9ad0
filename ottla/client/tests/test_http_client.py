"""Keys of tokens come over real TLS: from who publishes them and from nobody else, in time, and in bounds."""

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
Says = Callable[[Any], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def keys(authority: CertificateAuthority) -> TlsStore:
    return authority.issue("server", "/CN=localhost")


def says(*chunks: bytes, pause_s: float = 0.0) -> Says:
    """Reads the question, says something, and leaves."""

    def say(sock: Any) -> None:
        while (asked := sock.recv(4096)) and not asked.endswith(b"\r\n\r\n"):
            pass  # who leaves before the end of the question asks no more
        for chunk in chunks:
            sock.sendall(chunk)
            time.sleep(pause_s)

    return say


@contextmanager
def published(keys: TlsStore, say: Says | None = None) -> Iterator[int]:
    """A server with TLS for one who asks; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.location)
    listener = create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as sock, context.wrap_socket(sock, server_side=True) as secured:
            (say or says(GOOD))(secured)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(5)


def fetch(port: int, tls: TlsConfig | None, host: str = "localhost") -> bytes:
    async def main() -> bytes:
        return await http_get(RealEnv(), f"https://{host}:{port}/keys?x=1", tls)

    return trio.run(main)


def trusting(authority: CertificateAuthority) -> TlsConfig:
    return TlsConfig(truststore=authority.truststore)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_what_is_published_comes(authority: CertificateAuthority, keys: TlsStore, host: str) -> None:
    with published(keys) as port:
        assert fetch(port, trusting(authority), host) == DOCUMENT


def test_in_pieces_and_with_a_hasty_goodbye_it_comes_too(authority: CertificateAuthority, keys: TlsStore) -> None:
    def say(sock: Any) -> None:
        says(*PIECES)(sock)
        os.close(sock.detach())  # no word of TLS that this was all

    with published(keys, say) as port:
        assert fetch(port, trusting(authority)) == DOCUMENT


def test_somebody_elses_authority_is_not_trusted(keys: TlsStore, tmp_path: Path) -> None:
    with published(keys) as port, pytest.raises(HttpFetchError, match=r"(?i)certificate"):
        fetch(port, trusting(CertificateAuthority(tmp_path)))


def test_where_nobody_is_named_the_machines_authorities_are_trusted_and_no_other(keys: TlsStore) -> None:
    with published(keys) as port, pytest.raises(HttpFetchError, match=r"(?i)certificate"):
        fetch(port, None)


def test_the_certificate_must_have_the_name_that_was_asked(authority: CertificateAuthority) -> None:
    elsewhere = authority.issue("elsewhere", "/CN=localhost", alt="DNS:keys.example.org")
    with published(elsewhere) as port, pytest.raises(HttpFetchError, match=r"(?i)localhost"):
        fetch(port, trusting(authority))


def test_an_authority_whose_file_is_not_there_is_told(keys: TlsStore) -> None:
    with published(keys) as port, pytest.raises(HttpFetchError, match="gone"):
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
def test_what_is_no_document_is_none(authority: CertificateAuthority, keys: TlsStore, answer: bytes, why: str) -> None:
    with published(keys, says(answer)) as port, pytest.raises(HttpFetchError, match=why):
        fetch(port, trusting(authority))


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b""])
def test_an_answer_without_an_end_is_cut(authority: CertificateAuthority, keys: TlsStore, begins: bytes) -> None:
    endless = says(begins, *[bytes(MAX_DOCUMENT_BYTES // 8)] * 12)
    with published(keys, endless) as port, pytest.raises(HttpFetchError, match="more than"):
        fetch(port, trusting(authority))


def test_an_answer_in_drops_has_so_long_and_no_longer(
    authority: CertificateAuthority, keys: TlsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "TIMEOUT_S", 0.3)
    with published(keys, says(*[b"x"] * 20, pause_s=0.1)) as port, pytest.raises(HttpFetchError, match="no response"):
        fetch(port, trusting(authority))


def test_who_takes_the_call_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "TIMEOUT_S", 0.2)
    with create_server(("127.0.0.1", 0)) as silent, pytest.raises(HttpFetchError, match="no response"):
        fetch(silent.getsockname()[1], TlsConfig())
