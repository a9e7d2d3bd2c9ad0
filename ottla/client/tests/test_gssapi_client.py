"""GSSAPI client with a fake Kerberos library. Tickets of a real KDC are tested in `compat_tests`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.client.connection_security import SaslLogin
from ottla.client.gssapi_client import KerberosLogin, authenticate_gssapi, parse_kerberos_login
from ottla.client.sasl_authentication import AuthenticationFailed, authenticate
from ottla.client.security_config import InvalidSecurityConfig, parse_connection_security, parse_login
from ottla.env.env import ThreadPool
from ottla.env.kerberos import InvalidKeytab, InvalidTicket, KerberosIdentity
from ottla.runtime.real_env import RealEnv
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
BY_KEY = f'{MODULE} useKeyTab=true storeKey=true keyTab="/k" principal="a@HERE.ORG";'
OFFER = b"sealed \x01\x01\0\0"


@pytest.fixture(autouse=True)
def has_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.client.gssapi_client.find_spec", lambda name: name)


class FakeGssInitiator:
    """Initiator that sends a ticket and is established after the proof of the acceptor."""

    def __init__(self, proof: bytes = b"proof") -> None:
        self.is_established = False
        self._proof = proof

    def step(self, token: bytes) -> bytes:
        if token == b"":
            self.is_established = not self._proof
            return b"ticket"
        if token != self._proof:
            raise InvalidTicket("other principal")
        self.is_established = True
        return b""

    def wrap(self, data: bytes) -> bytes:
        return b"sealed " + data

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"sealed "):
            raise InvalidTicket("no seal")
        return token.removeprefix(b"sealed ")


class FakeKerberosEnv:
    """`Env` with a fake Kerberos library, and a connection with scripted responses."""

    def __init__(self, call: Callable[[], FakeGssInitiator], *answers: bytes) -> None:
        self._call, self._answers = call, list(answers)
        self.requests: list[tuple[KerberosIdentity, str]] = []
        self.sent_tokens: list[bytes] = []

    def call_library(self, identity: KerberosIdentity, service: str) -> FakeGssInitiator:
        self.requests.append((identity, service))
        return self._call()

    async def in_thread(self, work: Callable[[], Any], lane: ThreadPool) -> Any:
        assert lane is ThreadPool.KERBEROS
        await trio.lowlevel.checkpoint()
        return work()

    async def call(self, request: Any, version: int | None = None) -> Any:
        if not isinstance(request, SaslAuthenticateRequest):
            return SaslHandshakeResponse()
        self.sent_tokens.append(bytes(request.auth_bytes))
        if not self._answers:
            return SaslAuthenticateResponse(58, "no")
        return SaslAuthenticateResponse(auth_bytes=self._answers.pop(0))

    def version_for(self, key: Any, at_most: int = 9) -> int:
        return 2

    def log_in(self) -> list[bytes]:
        source = KerberosLogin(KerberosIdentity("a@HERE.ORG", "/k"), "kafka")
        env: Any = SimpleNamespace(kerberos_initiator=self.call_library, in_thread=self.in_thread)
        channel: Any = self
        trio.run(authenticate, channel, SaslLogin("GSSAPI", "", "", kerberos=source), env, "host")
        return self.sent_tokens


@pytest.mark.behaviour("S-320")
def test_gssapi_login_sends_ticket_then_empty_token_then_no_protection() -> None:
    env = FakeKerberosEnv(FakeGssInitiator, b"proof", OFFER, b"")
    assert env.log_in() == [b"ticket", b"", b"sealed \x01\0\0\0"]
    assert env.requests == [(KerberosIdentity("a@HERE.ORG", "/k"), "kafka@host")]


@pytest.mark.behaviour("S-320")
def test_gssapi_login_without_mutual_authentication_answers_offer_at_once() -> None:
    assert FakeKerberosEnv(lambda: FakeGssInitiator(b""), OFFER, b"").log_in() == [b"ticket", b"sealed \x01\0\0\0"]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((), "the principal of the ticket: no"),
        ((b"another proof",), "GSSAPI: other principal"),
        ((b"proof", b"not sealed"), "GSSAPI: no seal"),
        ((b"proof", b"sealed \x06\0\0\0"), "security layer"),
        ((b"proof", b"sealed \x01"), "security layer"),
        ((b"proof", OFFER), "the principal of the ticket: no"),
    ],
)
def test_gssapi_login_invalid_acceptor_raises_authentication_failed(answers: tuple[bytes, ...], why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        FakeKerberosEnv(FakeGssInitiator, *answers).log_in()


def test_gssapi_login_with_slow_kdc_does_not_block_acceptors() -> None:
    env, answers, came = RealEnv(), threading.Event(), list[str]()

    class Silent(FakeGssInitiator):
        def step(self, token: bytes) -> bytes:
            answers.wait()
            return super().step(token)

    def begin(identity: KerberosIdentity, service: str) -> FakeGssInitiator:
        answers.wait()
        return Silent()

    async def respond(token: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return OFFER if token == b"" else b"proof"

    async def run() -> None:
        real: Any = SimpleNamespace(kerberos_initiator=begin, in_thread=env.in_thread)
        async with trio.open_nursery() as nursery:
            for host in ("a", "b", "c"):
                nursery.start_soon(authenticate_gssapi, real, KerberosLogin(KerberosIdentity(), "kafka"), host, respond)
            await wait_all_tasks_blocked()
            with trio.move_on_after(5):
                came.append(await env.in_thread(lambda: "a client", ThreadPool.AUTHENTICATION))
            answers.set()

    trio.run(run)
    assert came == ["a client"]


def test_gssapi_login_without_ticket_raises_os_error() -> None:
    def no_ticket() -> FakeGssInitiator:
        raise InvalidKeytab("no ticket")

    with pytest.raises(OSError, match="no ticket"):
        FakeKerberosEnv(no_ticket).log_in()


# ---------------------------------------------------------------- settings

NO_FILE = f"{MODULE} useKeyTab=true;"


@pytest.mark.parametrize(
    ("jaas", "identity"),
    [
        (BY_KEY, KerberosIdentity("a@HERE.ORG", "/k")),
        (BY_KEY.replace("/k", "FILE:/k"), KerberosIdentity("a@HERE.ORG", "/k")),
        (f"{MODULE} useTicketCache=true;", KerberosIdentity()),
        (f'{MODULE} useTicketCache=true ticketCache="/c" principal="a";', KerberosIdentity("a", cache="/c")),
    ],
)
def test_parse_kerberos_login_returns_principal_and_keytab(jaas: str, identity: KerberosIdentity) -> None:
    assert parse_kerberos_login(jaas, "kafka") == KerberosLogin(identity, "kafka")


def test_parse_kerberos_login_service_name_in_jaas_config() -> None:
    assert parse_kerberos_login(BY_KEY.replace(";", ' serviceName="x";'), None).service == "x"
    assert parse_kerberos_login(BY_KEY.replace(";", ' serviceName="x";'), "x").service == "x"


@pytest.mark.parametrize(
    ("jaas", "service", "why"),
    [
        (None, "kafka", "GSSAPI"),
        ("nonsense", "kafka", "semicolon"),
        (BY_KEY, None, "service.name is missing"),
        (BY_KEY.replace(";", ' serviceName="x";'), "kafka", "differs from serviceName"),
        (NO_FILE, "kafka", "keyTab="),
        (f"{MODULE};", "kafka", "keyTab="),
    ],
)
def test_parse_login_invalid_gssapi_settings_raise_with_one_line(
    jaas: str | None, service: str | None, why: str
) -> None:
    with pytest.raises(InvalidSecurityConfig, match=why) as found:
        parse_login("GSSAPI", jaas, {"sasl.kerberos.service.name": service}.get)
    assert "\n" not in str(found.value)


def test_gssapi_is_default_mechanism_and_requires_library(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": BY_KEY, "sasl.kerberos.service.name": "kafka"}
    login = parse_connection_security(values).login
    assert login is not None
    assert login.kerberos == KerberosLogin(KerberosIdentity("a@HERE.ORG", "/k"), "kafka")
    monkeypatch.setattr("ottla.client.gssapi_client.find_spec", lambda name: None)
    with pytest.raises(InvalidSecurityConfig, match=r"pip install 'ottla\[kerberos\]'"):
        parse_connection_security(values)
