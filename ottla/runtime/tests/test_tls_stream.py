"""TLS streams: transfer, authentication of clients and servers, keystore changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.env.disk import FileSlice
from ottla.env.env import FOREVER_S, SocketBuffers
from ottla.env.tls import InvalidTlsConfig, TlsConfig, TlsStore
from ottla.runtime.certificate_subjects import format_subject
from ottla.runtime.keystores import load_certificates_pem
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.real_env import RealEnv
from ottla.runtime.ssl_contexts import server_ssl_context
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.runtime.tls_stream import TlsStream

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
MIB = 1 << 20


async def pair(server: TlsConfig, client: TlsConfig, host: str = "localhost") -> tuple[TlsStream, Any, str | None]:
    """Return both ends of a connection, and the subject of the client certificate."""
    env = RealEnv()
    listener = await env.net.listen("127.0.0.1", 0, SocketBuffers(16384, 16384), server)
    ends: list[Any] = []
    shown: list[str | None] = []

    async def accept() -> None:
        stream = await listener.accept()
        assert isinstance(stream, TlsStream)
        ends.append(stream)
        try:
            shown.append(await stream.handshake())
        except OSError:
            stream.close()
            raise

    try:
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept)
                dialled = await env.net.connect(host, listener.port, client)
    finally:
        listener.close()
    return ends[0], dialled, shown[0]


def over_tls(main: Callable[[TlsStream, Any], Awaitable[None]], server: TlsConfig, client: TlsConfig) -> None:
    async def run() -> None:
        ours, theirs, _ = await pair(server, client)
        with trio.fail_after(120):
            try:
                await main(ours, theirs)
            finally:
                ours.close()
                theirs.close()

    trio.run(run)


async def read(stream: Any, size: int) -> bytes:
    out, buffer = bytearray(), bytearray(MIB)
    while len(out) < size and (count := await stream.receive_into(memoryview(buffer), FOREVER_S)):
        out += buffer[:count]
    return bytes(out)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_send_bytes_and_file_ranges_arrive_in_order(authority, keys, tmp_path, version):
    path = tmp_path / "data"
    data = os.urandom(3 * MIB)
    path.write_bytes(data)
    part = FileSlice(RealDisk().open(str(path), readonly=True), 5, len(data) - 5)

    async def main(ours: TlsStream, theirs: Any) -> None:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(await read(theirs, len(data) + 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await ours.send([b"head:", memoryview(data)[:5], part])
        assert got == [b"head:" + data]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.send, [b"x" * 100_000])
            assert await read(ours, 100_000) == b"x" * 100_000

    over_tls(main, TlsConfig(keystore=keys, protocols=(version,)), TlsConfig(truststore=authority.truststore))


class FullRecordPeer:
    """Peer that sends a number of full records and then resets the connection."""

    def __init__(self, count: float) -> None:
        self.remaining = count

    def recv_into(self, buffer: Any) -> int:
        if not self.remaining:
            raise ConnectionResetError
        self.remaining -= 1
        return min(len(buffer), 16384)


def test_tls_receive_before_connection_reset_returns_received_data(authority, keys):
    """A received request is served even if its client no longer waits for the response."""

    async def main(ours: TlsStream, theirs: Any) -> None:
        real: Any = ours._tls
        ours._tls = FullRecordPeer(2)  # type: ignore[assignment]
        buffer = memoryview(bytearray(MIB))
        assert await ours.receive_into(buffer, FOREVER_S) == 32768
        with pytest.raises(ConnectionResetError):
            await ours.receive_into(buffer, FOREVER_S)
        ours._tls = real

    over_tls(main, TlsConfig(keys), TlsConfig(truststore=authority.truststore))


def test_tls_receive_full_records_together_and_yields(authority, keys):
    async def main(ours: TlsStream, theirs: Any) -> None:
        iterations: list[int] = []

        async def count_iterations() -> None:
            while True:
                iterations.append(1)
                await trio.lowlevel.checkpoint()

        real: Any = ours._tls
        ours._tls = FullRecordPeer(FOREVER_S)  # type: ignore[assignment]
        buffer = memoryview(bytearray(4 * MIB))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_iterations)
            sizes = [await ours.receive_into(buffer, FOREVER_S) for _ in range(8)]
            nursery.cancel_scope.cancel()
        ours._tls = real
        assert sizes == [MIB] * 8, "reads of exactly 1 MiB"
        assert len(iterations) >= 5

    over_tls(main, TlsConfig(keys), TlsConfig(truststore=authority.truststore))


def test_tls_close_ends_receive_of_peer(authority, keys):
    async def main(ours: TlsStream, theirs: Any) -> None:
        ours.close()
        assert await theirs.receive_into(memoryview(bytearray(10)), 5.0) == 0

    over_tls(main, TlsConfig(keystore=keys), TlsConfig(truststore=authority.truststore))


def test_tls_receive_timeout_returns_zero(authority, keys):
    async def main(ours: TlsStream, theirs: Any) -> None:
        assert await ours.receive_into(memoryview(bytearray(10)), 0.01) == 0

    over_tls(main, TlsConfig(keystore=keys), TlsConfig(truststore=authority.truststore))


@pytest.mark.behaviour("S-305")
@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@pytest.mark.parametrize("has_certificate", [True, False])
def test_tls_client_auth_modes_require_or_accept_certificate(authority, keys, auth, has_certificate):
    own = authority.issue("client", "/O=Here/OU=There/CN=alice+UID=7", alt="DNS:x")
    server = TlsConfig(keystore=keys, truststore=authority.truststore, client_auth=auth)
    client = TlsConfig(keystore=own if has_certificate else None, truststore=authority.truststore)

    async def run() -> str | None:
        ours, theirs, shown = await pair(server, client)
        ours.close()
        theirs.close()
        return shown

    if auth == "required" and not has_certificate:
        with pytest.RaisesGroup(OSError):
            trio.run(run)
    else:
        shown = trio.run(run)
        assert shown == ("UID=7+CN=alice,OU=There,O=Here" if has_certificate and auth != "none" else None) or shown == (
            "CN=alice+UID=7,OU=There,O=Here"
        )


def test_tls_client_unknown_authority_fails_verification(authority, keys, tmp_path):
    other = CertificateAuthority(tmp_path / "other")
    assert "CERTIFICATE_VERIFY_FAILED" in refused(TlsConfig(keystore=keys), TlsConfig(truststore=other.truststore))


def refused(server: TlsConfig, client: TlsConfig) -> str:
    """Return the errors of both ends of a failed handshake; one end may have none."""
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(pair, server, client)
    assert all(isinstance(x, ssl.SSLError) for x in caught.value.exceptions)
    return str(caught.value.exceptions)


@pytest.mark.behaviour("S-304")
@pytest.mark.parametrize("verifies", [True, False])
def test_tls_client_verifies_hostname_unless_disabled(authority, verifies):
    wrong = authority.issue("wrong", "/CN=elsewhere", alt="DNS:elsewhere")
    client = TlsConfig(truststore=authority.truststore, verify_hostname=verifies)
    if verifies:
        assert "Hostname mismatch" in refused(TlsConfig(keystore=wrong), client)
    else:
        ours, theirs, _ = trio.run(pair, TlsConfig(keystore=wrong), client)
        ours._sock.close()
        theirs._sock.close()


@pytest.mark.behaviour("S-306")
def test_tls_store_accepts_pem_text(authority, keys):
    async def main(ours: TlsStream, theirs: Any) -> None:
        await ours.send([b"x"])
        assert await read(theirs, 1) == b"x"

    as_text = TlsStore(pem=Path(keys.location).read_text())
    trusted = TlsStore(pem=Path(authority.truststore.location).read_text())
    over_tls(main, TlsConfig(keystore=as_text), TlsConfig(truststore=trusted))


@pytest.mark.behaviour("S-307")
def test_tls_listener_uses_new_keystore_for_next_connection(authority, keys):
    other = authority.issue("second", "/CN=second")

    async def run() -> None:
        env = RealEnv()
        listener: Any = await env.net.listen("127.0.0.1", 0, SocketBuffers(), TlsConfig(keystore=keys))
        names = []
        for renew in (None, TlsConfig(keystore=other), TlsConfig(keystore=TlsStore("no such file"))):
            if renew is not None:
                try:
                    listener.reload_tls(renew)
                except OSError:
                    names.append("refused")
            async with trio.open_nursery() as nursery:

                async def serve() -> None:
                    stream = await listener.accept()
                    await stream.handshake()
                    stream.close()

                nursery.start_soon(serve)
                dialled: Any = await env.net.connect(
                    "localhost", listener.port, TlsConfig(truststore=authority.truststore)
                )
                names.append(format_subject(dialled._tls.getpeercert()))
                dialled.close()
        listener.close()
        assert names == ["CN=localhost", "CN=second", "refused", "CN=second"]

    with_timeout(run)


def test_tls_client_reloads_changed_truststore(authority, keys, tmp_path):
    other = CertificateAuthority(tmp_path / "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Path(other.truststore.location).read_bytes())
    right = Path(authority.truststore.location).read_bytes()

    async def run() -> None:
        env = RealEnv()
        listener: Any = await env.net.listen("127.0.0.1", 0, SocketBuffers(), TlsConfig(keystore=keys))
        client = TlsConfig(truststore=TlsStore(str(trusted)))
        for expected in (False, True):

            async def serve() -> None:
                stream = await listener.accept()
                with suppress(OSError):
                    await stream.handshake()
                stream.close()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                try:
                    (await env.net.connect("localhost", listener.port, client)).close()
                    assert expected
                except ssl.SSLError:
                    assert not expected
            trusted.write_bytes(right)
            os.utime(trusted, ns=(1, 1))
        listener.close()

    with_timeout(run)


def test_tls_pkcs12_without_library_error_names_the_remedy(tmp_path):
    path = tmp_path / "a.p12"
    path.write_bytes(b"0\x82")
    with pytest.raises(InvalidTlsConfig, match="p12"):
        server_ssl_context(TlsConfig(keystore=TlsStore(str(path), password="pw-secret")))


def test_tls_jks_truststore_is_read_with_password_check(tmp_path):
    """A trusted certificate in the format of keytool."""
    der = b"\x30\x03\x02\x01\x01"
    entry = struct.pack(">i", 2) + struct.pack(">H", 2) + b"ca" + bytes(8) + struct.pack(">H", 5) + b"X.509"
    raw = b"\xfe\xed\xfe\xed" + struct.pack(">ii", 2, 1) + entry + struct.pack(">i", len(der)) + der
    raw += hashlib.sha1("pw".encode("utf-16-be") + b"Mighty Aphrodite" + raw).digest()
    path = tmp_path / "trusted.jks"
    path.write_bytes(raw)
    assert load_certificates_pem(TlsStore(str(path), password="pw")).splitlines()[1] == "MAMCAQE="
    assert load_certificates_pem(TlsStore(str(path))) == load_certificates_pem(TlsStore(str(path), password="pw"))
    for wrong in (TlsStore(str(path), password="other"), TlsStore(str(path), password="")):
        if wrong.password:
            with pytest.raises(InvalidTlsConfig, match="password is wrong"):
                load_certificates_pem(wrong)
    path.write_bytes(raw[:40])
    with pytest.raises(InvalidTlsConfig, match="broken"):
        load_certificates_pem(TlsStore(str(path)))


def with_timeout(main: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        with trio.fail_after(120):
            await main()

    trio.run(run)


def test_tls_listener_plaintext_client_fails_at_once(keys):
    async def run() -> None:
        listener = await RealEnv().net.listen("127.0.0.1", 0, SocketBuffers(), TlsConfig(keystore=keys))
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(b"\0\0\0\x20\0\x12\0\3")
            stream: Any = await listener.accept()
            with pytest.raises(OSError, match="SSL"):
                await stream.handshake()
            stream.close()
        listener.close()

    with_timeout(run)


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (TlsConfig(), "needs a key"),
        (TlsConfig(keystore=TlsStore(pem="-----BEGIN nothing")), "no usable key"),
        (TlsConfig(keystore=TlsStore(pem="-----BEGIN x", password="pw-secret")), "does not go with PEM"),
        (TlsConfig(protocols=("SSLv3",)), "SSLv3"),
        (TlsConfig(cipher_suites=("TLS_NOTHING",)), "TLS_NOTHING"),
    ],
)
def test_tls_config_unusable_raises_with_one_line(tls, why):
    with pytest.raises(InvalidTlsConfig, match=why) as refused:
        server_ssl_context(
            tls
            if tls.keystore or why == "needs a key"
            else TlsConfig(TlsStore(pem="x"), "", None, tls.protocols, tls.cipher_suites)
        )
    assert "secret" not in str(refused.value)


def test_tls_cipher_suites_have_java_names(keys):
    context = server_ssl_context(
        TlsConfig(keystore=keys, cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",), protocols=("TLSv1.2",))
    )
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in [x["name"] for x in context.get_ciphers()]
